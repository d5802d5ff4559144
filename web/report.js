"use strict";
// Draws the charts of the page with Plotly.js. Everything else is already in the HTML.
(() => {
  const root = document.documentElement;
  // The page, its panels, its charts, and the panels that a chart is one of.
  let page, panels, charts, panelsOf;
  // The same subject has the same colour and the same marker in every chart of the page.
  const subjects = [];
  function take(given) {
    page = given;
    const blocks = page.sections.flatMap((s) => s.blocks);
    panels = blocks.filter((b) => b.panels).map((b) => b.panels);
    charts = blocks.flatMap((b) => (b.chart ? [b.chart] : b.panels ? b.panels.charts : []));
    panelsOf = new Map(panels.flatMap((p) => p.charts.map((c) => [c, p])));
    for (const { subject } of charts.flatMap((c) => c.series)) if (!subjects.includes(subject)) subjects.push(subject);
  }
  take(JSON.parse(document.getElementById("page").textContent));

  // ---- colours ----

  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  // A custom property is not resolved until something is painted with it.
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };

  const SERIES_COLOURS = 7;
  const MARKERS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon"];
  const of = (subject) => subjects.indexOf(subject);
  const colourOf = (subject) => colour(subject ? `series-${of(subject) % SERIES_COLOURS}` : "quiet");

  // ---- words and numbers ----

  // Plotly reads some HTML in its labels; ours are plain text.
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const axisTitle = (axis) => plain(axis.unit ? `${axis.title}, ${axis.unit}` : axis.title);
  const digits = (x) => {
    const decimals = x === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(x))));
    return x.toLocaleString("en-US", { maximumFractionDigits: Math.min(decimals, 12) });
  };
  const tick = (x) => {
    const [divisor, suffix] = x >= 1e9 ? [1e9, " G"] : x >= 1e6 ? [1e6, " M"] : [1, ""];
    return (x / divisor).toLocaleString("en-US", { maximumSignificantDigits: 6 }) + suffix;
  };
  const place = (x) => (Array.isArray(x) ? x.join(" · ") : typeof x === "number" ? digits(x) : x);

  const hover = (chart, series, point) => {
    const interval = point.low === undefined ? "" : ` [${digits(point.low)}, ${digits(point.high)}]`;
    const lines = [
      series.name + (series.role === "published" ? " (published)" : ""),
      `${chart.x.title} ${place(point.x)} ${chart.x.unit ?? ""}`,
      `${chart.y.title} ${digits(point.y)}${interval} ${chart.y.unit ?? ""}`,
      point.label ?? "",
    ];
    return lines.filter((l) => l.trim()).map(plain).join("<br>");
  };

  // ---- traces ----

  const drawable = (axis, value) => axis.scale !== "log" || value > 0;
  const DENSE = 60;

  // A published series beside ours of the same subject: one entry in the legend is enough for both.
  const isTwin = (chart, series) =>
    series.role === "published" && chart.series.some((s) => s.subject === series.subject && s.role === "ours");

  // What all twins look like, said once.
  function legendOfTwins(chart) {
    if (!chart.series.some((s) => isTwin(chart, s))) return [];
    const ink = colour("quiet");
    const marker = { color: ink, size: 11, symbol: "circle-open", line: { color: ink, width: 1.75 } };
    return [{ type: "scatter", mode: "lines+markers", name: "published", x: [null], y: [null], line: { color: ink, width: 1.75, dash: "dot" }, marker, hoverinfo: "skip" }];
  }

  // Cells of a map. Its rows are those of a logarithmic scale, its shades powers of ten of the weight.
  const DECADES = 4;
  function heat(chart, series) {
    const { points } = series;
    const columns = [...new Set(points.map((p) => p.x))].sort((a, b) => a - b);
    const least = Math.min(...points.map((p) => p.low));
    const ratio = points.length ? points[0].high / points[0].low : 1;
    const row = (p) => Math.round(Math.log(p.low / least) / Math.log(ratio));
    const rows = Math.max(-1, ...points.map(row)) + 1;
    const [z, text] = [0, 1].map(() => Array.from({ length: rows }, () => columns.map(() => null)));
    for (const p of points) {
      const [i, j] = [row(p), columns.indexOf(p.x)];
      z[i][j] = Math.max(-DECADES, Math.log10(p.weight));
      text[i][j] = plain(`${chart.x.title} ${digits(p.x)} ${chart.x.unit ?? ""}: ${digits(100 * p.weight)} % waited ${digits(p.low)} to ${digits(p.high)} ${chart.y.unit ?? ""}`);
    }
    const edges = columns.map((x, i) => (i ? (x + columns[i - 1]) / 2 : x - ((columns[1] ?? x + 1) - x) / 2));
    if (columns.length) edges.push(2 * columns.at(-1) - edges.at(-1));
    const y = Array.from({ length: rows && rows + 1 }, (_, i) => least * ratio ** i);
    const ink = colourOf(series.subject).match(/[\d.]+/g).slice(0, 3).join();
    const colorscale = [[0, `rgba(${ink},0.12)`], [1, `rgba(${ink},1)`]];
    return { type: "heatmap", x: edges, y, z, text, hovertemplate: "%{text}<extra></extra>", hoverongaps: false, zmin: -DECADES, zmax: 0, showscale: false, colorscale, showlegend: false };
  }

  function trace(chart, series) {
    if (series.kind === "heat") return heat(chart, series);
    // A point without height is a gap in the line.
    const points = series.points.filter((p) => drawable(chart.y, p.y) && drawable(chart.x, p.x))
      .flatMap((p) => (p.apart ? [{ x: p.x, y: null }, p] : [p]));
    const nested = points.some((p) => Array.isArray(p.x));
    const x = nested ? [0, 1].map((i) => points.map((p) => p.x[i])) : points.map((p) => p.x);
    const ink = colourOf(series.subject);
    const ours = series.role === "ours";
    const common = {
      name: plain(series.name),
      legendgroup: series.subject,
      showlegend: !isTwin(chart, series),
      x,
      y: points.map((p) => p.y),
      text: points.map((p) => (p.y === null ? "" : hover(chart, series, p))),
      textposition: "none",
      hovertemplate: "%{text}<extra></extra>",
    };
    if (points.some((p) => p.low !== undefined)) {
      // On a log axis a bar that would reach zero ends at the edge of the plot, far below any point.
      const low = (p) => (p.low === undefined ? p.y : drawable(chart.y, p.low) ? p.low : p.y * 1e-6);
      common.error_y = {
        type: "data",
        symmetric: false,
        array: points.map((p) => (p.high ?? p.y) - p.y),
        arrayminus: points.map((p) => p.y - low(p)),
        color: series.kind.endsWith("bars") ? colour("ink") : ink,
        thickness: 1.4,
        width: 4,
      };
    }
    if (series.kind === "bars" || series.kind === "stacked_bars") {
      const pattern = ours ? undefined : { shape: "/", fgcolor: ink, bgcolor: colour("paper"), size: 6 };
      const edge = { color: ours ? colour("paper") : ink, width: 1 };
      return { ...common, type: "bar", marker: { color: ink, line: edge, pattern } };
    }
    const panel = panelsOf.has(chart);
    const dense = panel || points.length >= DENSE;
    // Between two gaps a point has no line that would show it.
    const lone = points.some((p, i) => p.y !== null && (i === 0 || points[i - 1].y === null) && (points[i + 1]?.y ?? null) === null);
    const markers = series.role !== "reference" && (lone || !(dense && series.kind === "line"));
    const lines = series.kind === "line";
    const symbol = MARKERS[Math.max(0, of(series.subject)) % MARKERS.length] + (ours ? "" : "-open");
    return {
      ...common,
      type: "scatter",
      mode: [lines && "lines", markers && "markers"].filter(Boolean).join("+"),
      line: { color: ink, width: panel ? 1.6 : ours ? 2.25 : 1.75, dash: { ours: "solid", published: "dot", reference: "dash" }[series.role] },
      marker: { color: ink, size: panel ? 4 : dense ? 5 : ours ? 8 : 13, symbol, line: { color: ink, width: ours ? 0 : 1.75 } },
    };
  }

  // ---- axes ----

  function extent(chart, which) {
    const values = chart.series.flatMap((s) =>
      s.points.flatMap((p) => (which === "x" ? [p.x] : [p.y, p.low ?? p.y, p.high ?? p.y])));
    for (const line of chart.lines ?? []) if (line.on === which) values.push(line.value);
    const usable = values.filter((v) => typeof v === "number" && drawable(chart[which], v));
    return usable.length ? [Math.min(...usable), Math.max(...usable)] : undefined;
  }

  // Whole decades where there are some, 1-2-5 within one or two, finer where that leaves no two; never a label such as
  // a lone "5" of unknown decade.
  function logTicks([low, high]) {
    const decades = high - low;
    const every = Math.max(1, Math.ceil(decades / 8));
    const steps = (first, last, by) => Array.from({ length: Math.floor((last - first) / by) + 1 }, (_, i) => first + i * by);
    const within = (multiples) => {
      const values = [];
      for (let e = Math.floor(low); e <= Math.ceil(high); e += every) for (const m of multiples) values.push(m * 10 ** e);
      return values.filter((v) => Math.log10(v) >= low - 1e-9 && Math.log10(v) <= high + 1e-9);
    };
    const coarse = decades > 2 ? [1] : decades > 1 ? [1, 3] : [1, 2, 5];
    const found = [coarse, steps(1, 9, 1), steps(10, 99, 1).map((m) => m / 10)].map(within);
    return found.find((values) => values.length > 1) ?? found[0];
  }

  // The few places at which something was measured are better ticks than round numbers.
  function measuredTicks(chart) {
    const values = [...new Set(chart.series.flatMap((s) => s.points.map((p) => p.x)))].sort((a, b) => a - b);
    if (values.length < 2 || values.length > 8) return undefined;
    const length = chart.x.scale === "log" ? Math.log10 : (v) => v;
    const gap = (length(values.at(-1)) - length(values[0])) / 12;
    return values.every((v, i) => i === 0 || length(v) - length(values[i - 1]) >= gap) ? values : undefined;
  }

  function axis(chart, which) {
    const spec = chart[which];
    const base = {
      title: { text: axisTitle(spec), standoff: 10, font: { size: 13, color: colour("quiet") } },
      gridcolor: colour("grid"),
      linecolor: colour("rule"),
      tickcolor: colour("rule"),
      tickfont: { size: 12, color: colour("quiet") },
      ticks: "outside",
      ticklen: 4,
      zeroline: false,
      showline: true,
      automargin: true,
      fixedrange: false,
    };
    if (spec.scale === "category") {
      const nested = chart.series.some((s) => s.points.some((p) => Array.isArray(p.x)));
      return { ...base, type: nested ? "multicategory" : "category", showgrid: false, ticks: "", dividercolor: colour("rule") };
    }
    const range = extent(chart, which);
    const places = which === "x" && range ? measuredTicks(chart) : undefined;
    if (spec.scale === "linear") {
      const ticks = places && { tickmode: "array", tickvals: places, ticktext: places.map(tick) };
      return { ...base, type: "linear", rangemode: which === "y" ? "tozero" : "normal", separatethousands: true, ...ticks };
    }
    if (!range) return { ...base, type: "log" };
    const pad = Math.max(0.08, (Math.log10(range[1]) - Math.log10(range[0])) * 0.06);
    const exponents = [Math.log10(range[0]) - pad, Math.log10(range[1]) + pad];
    const ticks = places ?? logTicks(exponents);
    const minor = { dtick: "D1", ticks: "outside", ticklen: 2, tickcolor: colour("rule"), showgrid: true, gridcolor: colour("grid-fine") };
    return { ...base, type: "log", range: exponents, tickmode: "array", tickvals: ticks, ticktext: ticks.map(tick), minor };
  }

  // ---- lines and layout ----

  // Labels of upright lines that stand close together stand one above the other: which row each has.
  function labelRows(chart) {
    const upright = (chart.lines ?? []).filter((line) => line.on === "x").sort((a, b) => a.value - b.value);
    const [low, high] = extent(chart, "x") ?? [0, 1];
    const place = chart.x.scale === "log" ? Math.log10 : (v) => v;
    const rows = new Map();
    upright.forEach((line, i) => {
      const gap = i === 0 ? 1 : (place(line.value) - place(upright[i - 1].value)) / (place(high) - place(low) || 1);
      rows.set(line, gap < 0.25 ? rows.get(upright[i - 1]) + 1 : 0);
    });
    return rows;
  }

  function referenceLines(chart) {
    const shapes = [];
    const annotations = [];
    const rows = labelRows(chart);
    for (const line of chart.lines ?? []) {
      const across = line.on === "y";
      const ink = line.subject ? colourOf(line.subject) : colour("quiet");
      const at = across ? { x0: 0, x1: 1, xref: "paper", y0: line.value, y1: line.value } : { y0: 0, y1: 1, yref: "paper", x0: line.value, x1: line.value };
      shapes.push({ type: "line", layer: "below", line: { color: ink, width: 1.25, dash: "dash" }, ...at });
      const logOf = (which) => (chart[which].scale === "log" ? Math.log10(line.value) : line.value);
      const label = { text: plain(line.label), showarrow: false, font: { size: 11.5, color: ink }, borderpad: 1 };
      annotations.push(across
        ? { ...label, xref: "paper", x: 1, xanchor: "right", y: logOf("y"), yanchor: "bottom" }
        : { ...label, yref: "paper", y: 1, yshift: 15 * rows.get(line), yanchor: "bottom", x: logOf("x"), xanchor: "auto" });
    }
    return { shapes, annotations };
  }

  // A fault in force is a shaded span, another primary an upright line; both have their number in the topmost panel.
  function panelMarks(chart, { charts: all, marks }) {
    const [shapes, annotations] = [[], []];
    for (const { from, to, label, text } of marks) {
      const ink = colour(to === undefined ? "accent" : "bad");
      const upright = { type: "line", x0: from, x1: from, yref: "paper", y0: 0, y1: 1 };
      shapes.push({ ...upright, line: { color: ink, width: 1.25, dash: to === undefined ? "dot" : "solid" } });
      if (to !== undefined) {
        shapes.push({ ...upright, type: "rect", x1: to, layer: "below", line: { width: 0 }, fillcolor: ink, opacity: 0.12 });
      }
      if (chart !== all[0]) continue;
      annotations.push({ text: plain(label), hovertext: plain(text), x: from, xanchor: "left", yref: "paper", y: 1, yanchor: "top", showarrow: false, font: { size: 12, color: ink }, borderpad: 2 });
    }
    return { shapes, annotations };
  }

  function panelLayout(chart, of) {
    const last = chart === of.charts.at(-1);
    const names = (c) => (c ? c.series.map((s) => s.name).join() : "");
    // The nodes are the same in one panel after the other.
    const showlegend = chart.series.length > 1 && names(chart) !== names(of.charts[of.charts.indexOf(chart) - 1]);
    const ends = of.charts.map((c) => extent(c, "x")).filter(Boolean);
    const most = Math.max(0, ...ends.map(([, high]) => high));
    const [x, y] = [axis({ ...chart, series: [] }, "x"), axis(chart, "y")];
    const title = last ? x.title : { text: "" };
    // A heading leaves room for the legend at its right.
    document.getElementById(chart.id).previousElementSibling.classList.toggle("beside", showlegend);
    return {
      ...layout(chart),
      ...panelMarks(chart, of),
      xaxis: { ...x, title, range: [of.from, most], showticklabels: last, automargin: false },
      yaxis: { ...y, title: { text: "" }, automargin: false, nticks: 4, minor: undefined },
      margin: { l: 56, r: 14, t: showlegend ? 24 : 8, b: last ? 40 : 8 },
      showlegend,
      legend: { ...layout(chart).legend, y: 1, yref: "paper", yanchor: "bottom", x: 1, xanchor: "right", font: { size: 11.5, color: colour("ink") } },
      hovermode: "closest",
    };
  }

  function layout(chart) {
    // The label of an upright line stands between plot and legend.
    const rows = Math.max(0, ...[...labelRows(chart).values()].map((row) => row + 1));
    const stacked = chart.series.some((s) => s.kind === "stacked_bars");
    return {
      ...referenceLines(chart),
      // What a reader has zoomed into stays when the data go on.
      uirevision: chart.id,
      xaxis: axis(chart, "x"),
      yaxis: axis(chart, "y"),
      barmode: stacked ? "stack" : "group",
      bargap: 0.25,
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 56, r: 14, t: 10 + 16 * rows, b: 44 },
      showlegend: chart.series.length > 1,
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.03 + 0.05 * rows, yanchor: "bottom", font: { size: 12.5, color: colour("ink") }, bgcolor: "rgba(0,0,0,0)", traceorder: "normal", itemclick: "toggle", itemdoubleclick: "toggleothers" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("quiet"), activecolor: colour("accent") },
      hovermode: "closest",
      hoverlabel: { bgcolor: colour("paper"), bordercolor: colour("rule"), font: { color: colour("ink"), size: 12.5 }, align: "left" },
      // A finger that scrolls the page must not zoom a chart.
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    };
  }

  const config = {
    responsive: false, // It would watch the window only; a chart also changes when its neighbours do. See below.
    displaylogo: false,
    displayModeBar: "hover",
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d"]],
    showLink: false,
    showSendToCloud: false,
    showEditInChartStudio: false,
    plotlyServerURL: "",
    topojsonURL: "",
    doubleClick: "reset",
  };

  // Lets the browser paint, and answer to its reader, before more is done.
  const breath = () => new Promise((wake) => setTimeout(wake, 0));

  // The chart library is packed, for it would be three quarters of the page; browsers since 2023 unpack it.
  const library = (async () => {
    const packed = document.getElementById("plotly");
    // Words and tables are there to be read first: what draws takes its time.
    await breath();
    const text = packed.textContent.trim();
    const bytes = Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    document.head.append(Object.assign(document.createElement("script"), { textContent: await new Response(unpacked).text() }));
    packed.remove();
  })();

  async function draw(chart) {
    try {
      await library;
      const traces = [...chart.series.map((s) => trace(chart, s)), ...legendOfTwins(chart)];
      const of = panelsOf.get(chart);
      await Plotly.react(chart.id, traces, of ? panelLayout(chart, of) : layout(chart), config);
      // Read aloud, a drawing is a heap of ticks: its label and its table say what it shows. Its buttons are read.
      document.getElementById(chart.id).querySelectorAll(".main-svg").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
      return 1;
    } catch (e) {
      tipoverFailed(`chart ${chart.title}: ${e}`);
      return 0;
    }
  }

  // ---- pictures ----

  // The chart as a file, with its caption and where it is from: outside of the page nobody knows.
  async function save(chart, format) {
    await library;
    const plot = document.getElementById(chart.id);
    const [width, height] = [plot.clientWidth, plot.clientHeight + 60];
    const margin = { ...plot.layout.margin, t: plot.layout.margin.t + 60 };
    const title = {
      text: plain(chart.title),
      subtitle: { text: plain(page.title), font: { size: 12, color: colour("quiet") } },
      x: 0.01,
      xanchor: "left",
      y: 0.98,
      yref: "container",
      yanchor: "top",
      font: { size: 15, color: colour("ink") },
    };
    const picture = { data: plot.data, layout: { ...plot.layout, width, height, margin, title, paper_bgcolor: colour("paper") }, config };
    const href = await Plotly.toImage(picture, { format, width, height, scale: format === "png" ? 2 : 1 });
    Object.assign(document.createElement("a"), { href, download: `${chart.id}.${format}` }).click();
  }

  for (const { id, title } of charts) {
    const figure = document.getElementById(id).closest("figure");
    // Panels are many and have one line together.
    let line = figure.querySelector(".save");
    if (!line) {
      line = Object.assign(document.createElement("p"), { className: "save" });
      figure.querySelector("details").before(line);
    }
    line.append(figure.classList.contains("panels") ? `${line.textContent ? "· " : "Save "}${title} as ` : "Save the picture as ");
    for (const format of ["svg", "png"]) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: format.toUpperCase() });
      button.setAttribute("aria-label", `Save ${title} as ${format.toUpperCase()}`);
      button.addEventListener("click", () => save(charts.find((c) => c.id === id), format).catch(tipoverFailed));
      line.append(button, " ");
    }
  }

  // All at once and not one after the other: the printer does not wait.
  async function drawAll() {
    dispatchEvent(new Event("tipover-drawn"));
    const drawn = await Promise.all(charts.map(draw));
    root.dataset.requests = String(performance.getEntriesByType("resource").length);
    root.dataset.charts = `${drawn.reduce((sum, n) => sum + n, 0)}/${charts.length}`;
    root.dataset.drawnAfterMs ??= String(Math.round(performance.now()));
  }

  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.data && target.clientWidth !== target._fullLayout.width) Plotly.Plots.resize(target);
    }
  });

  // Panels are looked at through the same window of time.
  function follow({ charts: all }) {
    const plots = all.map((c) => document.getElementById(c.id));
    let led = false;
    for (const plot of plots) {
      plot.on?.("plotly_relayout", async (change) => {
        if (led || !Object.keys(change).some((key) => key.startsWith("xaxis"))) return;
        led = true;
        const range = [...plot.layout.xaxis.range];
        await Promise.all(plots.filter((p) => p !== plot).map((p) => Plotly.relayout(p, { "xaxis.range": range })));
        led = false;
      });
    }
  }

  // ---- theme ----

  const button = document.getElementById("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (systemDark.matches ? "dark" : "light")) === "dark";
  const nameButton = () => {
    button.hidden = false;
    button.textContent = isDark() ? "Light theme" : "Dark theme";
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameButton();
    drawAll();
  });
  systemDark.addEventListener("change", () => {
    nameButton();
    drawAll();
  });
  // Paper is white, whatever the screen was.
  let onScreen;
  addEventListener("beforeprint", () => {
    onScreen = root.dataset.theme;
    root.dataset.theme = "light";
    drawAll();
  });
  addEventListener("afterprint", () => {
    if (onScreen) root.dataset.theme = onScreen;
    else delete root.dataset.theme;
    drawAll();
  });

  // ---- navigation ----

  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      for (const [id, link] of links) {
        if (id === entry.target.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  document.querySelectorAll("main > section").forEach((s) => watcher.observe(s));

  // Another state of the same page, whose charts are called as before.
  window.tipoverShow = (given) => {
    take(given);
    return drawAll();
  };

  nameButton();
  drawAll().then(() => {
    charts.forEach((c) => sizes.observe(document.getElementById(c.id)));
    panels.forEach(follow);
  });
})();
