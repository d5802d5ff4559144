"use strict";
// Follows a run: shows every state that its program sends, says when nothing comes any more, and goes on when
// the program is started again.
(() => {
  const root = document.documentElement;
  const page = JSON.parse(document.getElementById("page").textContent);
  const made = (p) => `${p.made_by.version} ${p.made_by.commit}`;
  const charts = (p) => JSON.stringify(p.sections.flatMap((s) => s.blocks).flatMap((b) => b.panels?.charts ?? []).map((c) => c.id));
  const status = document.createElement("p");
  status.className = "guide";
  status.setAttribute("role", "status");
  document.querySelector("main > header").append(status);
  root.dataset.updates = "0";

  // What came while nobody looked is drawn when somebody does; only the last of it matters.
  let waiting, drawing = false;
  async function show() {
    if (drawing || !waiting || document.hidden) return;
    const { page: next, html } = waiting;
    waiting = undefined;
    // Another program, or other charts than this page has: it begins anew.
    if (made(next) !== made(page) || charts(next) !== charts(page)) return location.reload();
    drawing = true;
    document.title = `${next.title} · Tipover`;
    document.querySelector("h1").textContent = next.title;
    document.querySelector(".question").textContent = next.question;
    for (const [id, text] of Object.entries(html)) document.getElementById(id).outerHTML = text;
    await tipoverShow(next);
    root.dataset.updates = String(Number(root.dataset.updates) + 1);
    drawing = false;
    show();
  }
  document.addEventListener("visibilitychange", show);

  const time = () => new Date().toLocaleTimeString();
  function listen() {
    const source = new EventSource(`events${location.search}`);
    source.onopen = () => (status.textContent = "Connected: this page follows the run.");
    source.onmessage = ({ data }) => {
      waiting = JSON.parse(data);
      show().catch(tipoverFailed);
    };
    source.onerror = () => {
      status.textContent = `No connection since ${time()}: the run has ended or was stopped. This page goes on when it runs again.`;
      // The browser tries again by itself, unless it was refused.
      if (source.readyState !== EventSource.CLOSED) return;
      source.close();
      setTimeout(listen, 2000);
    };
  }
  listen();
})();
