"use strict";
// Plays the moving pictures of accesses. A frame of the page has for each file a canvas of its places, a cell
// a pixel, and one of its rows against time; what is drawn is a pure function of the moment.
(() => {
  const page = JSON.parse(document.getElementById("page").textContent);
  const pictures = page.sections.flatMap((s) => s.blocks).filter((b) => b.accesses).map((b) => b.accesses);
  const KINDS = 3;
  const KIND_COLOURS = ["series-0", "series-1", "series-2"];
  // How long an access glows on the screen, whatever the speed.
  const GLOW_SECONDS = 0.5;
  const TINT = 0.16;
  const SPEEDS = [1 / 50, 1 / 20, 1 / 10, 1 / 4, 1 / 2, 1, 2, 5, 10, 20, 60, 300, 3600];

  // Counts as frame, kind, cell, count; `begins[frame]` is where a frame's begin.
  function decode(accesses) {
    const text = atob(accesses.counts);
    let at = 0;
    const take = () => {
      let number = 0;
      for (let unit = 1; ; unit *= 128) {
        const byte = text.charCodeAt(at++);
        number += (byte & 127) * unit;
        if (byte < 128) return number;
      }
    };
    const kinds = [], cells = [], counts = [], begins = [0];
    for (let frame = 0; frame < accesses.frames; frame++) {
      for (let kind = 0; kind < KINDS; kind++) {
        let cell = 0;
        for (let left = take(); left > 0; left--) {
          const head = take();
          cell += Math.floor(head / 2);
          kinds.push(kind);
          cells.push(cell++);
          counts.push(head % 2 ? take() : 1);
        }
      }
      begins.push(cells.length);
    }
    return { kinds, cells, counts, begins };
  }

  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const span = document.createElement("span");
  span.hidden = true;
  document.body.append(span);
  // Red, green and blue of a custom property, whatever syntax it resolves to.
  function rgb(name) {
    span.style.color = `var(--${name})`;
    probe.fillStyle = getComputedStyle(span).color;
    probe.fillRect(0, 0, 1, 1);
    return probe.getImageData(0, 0, 1, 1).data;
  }

  function player(picture) {
    const figure = document.getElementById(picture.id);
    const accesses = picture.accesses;
    const data = decode(accesses);
    const find = (selector) => figure.querySelector(selector);
    const [play, speed, moment, now] = [".play", ".speed", ".moment", ".now"].map(find);
    const boxes = [...figure.querySelectorAll(".kind input")];
    const frameSeconds = accesses.window_ns / 1e9 / accesses.frames;
    const cellCount = accesses.drawn.reduce((sum, band) => sum + band.rows * accesses.row_cells, 0);
    const bands = accesses.drawn.map((band, n) => ({
      ...band,
      places: find(`.places[data-band="${n}"]`),
      times: find(`.times[data-band="${n}"]`),
    }));
    // `null` is the whole recording; otherwise frames since its begin.
    let at = null;
    let playing = false;
    let last = 0;
    let timer;
    let shown = [true, true, true];
    let colours;
    let timesImages;

    const strength = new Float32Array(cellCount);
    const owner = new Uint8Array(cellCount);
    const first = new Uint32Array(cellCount);

    function whole() {
      const sums = [0, 1, 2].map(() => new Float64Array(cellCount));
      data.cells.forEach((cell, i) => {
        if (shown[data.kinds[i]]) sums[data.kinds[i]][cell] += data.counts[i];
      });
      let most = 1;
      for (let cell = 0; cell < cellCount; cell++) {
        const all = sums[0][cell] + sums[1][cell] + sums[2][cell];
        strength[cell] = all;
        owner[cell] = sums[0][cell] >= sums[1][cell] ? (sums[0][cell] >= sums[2][cell] ? 0 : 2) : sums[1][cell] >= sums[2][cell] ? 1 : 2;
        most = Math.max(most, all);
      }
      const scale = Math.log1p(most);
      for (let cell = 0; cell < cellCount; cell++) {
        if (strength[cell] > 0) strength[cell] = 0.3 + 0.7 * Math.log1p(strength[cell]) / scale;
      }
    }

    function instant() {
      const glow = Math.max(1, GLOW_SECONDS * Number(speed.value) / frameSeconds);
      strength.fill(0);
      const from = Math.max(0, Math.floor(at - glow));
      const to = Math.min(accesses.frames, Math.ceil(at));
      for (let frame = from; frame < to; frame++) {
        const fresh = Math.min(1, Math.max(0.05, 1 - (at - frame - 1) / glow));
        for (let i = data.begins[frame]; i < data.begins[frame + 1]; i++) {
          if (!shown[data.kinds[i]] || strength[data.cells[i]] > fresh) continue;
          strength[data.cells[i]] = fresh;
          owner[data.cells[i]] = data.kinds[i];
        }
      }
      // What was accessed before stays visible.
      for (let cell = 0; cell < cellCount; cell++) {
        if (first[cell] < at && strength[cell] < TINT) {
          strength[cell] = TINT;
          owner[cell] = 255;
        }
      }
    }

    function put(pixels, place, share, ink) {
      const { paper } = colours;
      for (let c = 0; c < 3; c++) pixels[place * 4 + c] = paper[c] + (ink[c] - paper[c]) * share;
      pixels[place * 4 + 3] = 255;
    }

    function drawPlaces() {
      if (at === null) whole();
      else instant();
      for (const band of bands) {
        const context = band.places.getContext("2d");
        const image = context.createImageData(band.places.width, band.places.height);
        for (let place = 0; place < band.rows * accesses.row_cells; place++) {
          const cell = band.first_cell + place;
          put(image.data, place, strength[cell], colours.kinds[owner[cell]] ?? colours.quiet);
        }
        context.putImageData(image, 0, 0);
      }
    }

    // Rows against time: does not move, so it is made once and only the line of the moment is drawn again.
    function makeTimes() {
      const perRow = new Map();
      let most = 1;
      for (let frame = 0; frame < accesses.frames; frame++) {
        for (let i = data.begins[frame]; i < data.begins[frame + 1]; i++) {
          if (!shown[data.kinds[i]]) continue;
          const key = Math.floor(data.cells[i] / accesses.row_cells) * accesses.frames + frame;
          let counts = perRow.get(key);
          if (!counts) perRow.set(key, (counts = [0, 0, 0]));
          counts[data.kinds[i]] += data.counts[i];
          most = Math.max(most, counts[0] + counts[1] + counts[2]);
        }
      }
      const scale = Math.log1p(most);
      timesImages = bands.map((band) => {
        const image = band.times.getContext("2d").createImageData(band.times.width, band.times.height);
        const top = band.first_cell / accesses.row_cells;
        for (let row = 0; row < band.rows; row++) {
          for (let frame = 0; frame < accesses.frames; frame++) {
            const counts = perRow.get((top + row) * accesses.frames + frame) ?? [0, 0, 0];
            const all = counts[0] + counts[1] + counts[2];
            const ink = colours.kinds[counts.indexOf(Math.max(...counts))];
            put(image.data, row * accesses.frames + frame, all ? 0.2 + 0.8 * Math.log1p(all) / scale : 0, ink);
          }
        }
        return image;
      });
    }

    function drawTimes() {
      bands.forEach((band, n) => {
        const context = band.times.getContext("2d");
        context.putImageData(timesImages[n], 0, 0);
        if (at === null) return;
        context.fillStyle = colours.line;
        context.fillRect(Math.min(accesses.frames - 1, Math.floor(at)), 0, 1, band.times.height);
      });
    }

    function draw() {
      drawPlaces();
      drawTimes();
      const seconds = (frames) => `${(frames * frameSeconds).toFixed(frameSeconds < 0.1 ? 2 : 1)} s`;
      now.textContent = at === null ? `the whole ${seconds(accesses.frames)}` : `${seconds(at)} of ${seconds(accesses.frames)}`;
      moment.value = String(Math.round(at ?? 0));
      play.textContent = playing ? "Pause" : "Play";
      figure.dataset.state = playing ? "playing" : at === null ? "whole" : "paused";
      figure.dataset.at = String(at ?? "");
    }

    function readColours() {
      const css = (name) => {
        span.style.color = `var(--${name})`;
        return getComputedStyle(span).color;
      };
      colours = { paper: rgb("sunk"), quiet: rgb("quiet"), line: css("ink"), kinds: KIND_COLOURS.map(rgb) };
    }

    function redraw() {
      readColours();
      first.fill(2 ** 32 - 1);
      for (let frame = accesses.frames - 1; frame >= 0; frame--) {
        for (let i = data.begins[frame]; i < data.begins[frame + 1]; i++) {
          if (shown[data.kinds[i]]) first[data.cells[i]] = frame;
        }
      }
      makeTimes();
      draw();
    }

    // Thirty pictures a second by a timer: animation frames stop where nobody renders, as in tests.
    function step() {
      if (!playing) return;
      const time = performance.now();
      at += (time - last) / 1000 * Number(speed.value) / frameSeconds;
      last = time;
      if (at >= accesses.frames) {
        playing = false;
        at = null;
      }
      draw();
      schedule();
    }

    function schedule() {
      clearTimeout(timer);
      if (playing) timer = setTimeout(step, 33);
    }

    play.addEventListener("click", () => {
      playing = !playing;
      at ??= 0;
      last = performance.now();
      draw();
      schedule();
    });
    moment.addEventListener("input", () => {
      at = Number(moment.value);
      draw();
    });
    speed.addEventListener("change", draw);
    boxes.forEach((box) => box.addEventListener("change", () => {
      shown = boxes.map((b) => b.checked);
      redraw();
    }));
    for (const { times } of bands) {
      times.addEventListener("click", (e) => {
        at = (e.offsetX / times.clientWidth) * accesses.frames;
        draw();
      });
    }

    const seconds = accesses.window_ns / 1e9;
    const fitting = SPEEDS.filter((s) => seconds / s >= 1 && seconds / s <= 1800);
    for (const s of fitting.length ? fitting : [1]) {
      speed.append(new Option(s >= 1 ? `${s} ×` : `1/${Math.round(1 / s)} ×`, s));
    }
    // In real time if that is neither a blink nor a wait.
    const best = (fitting.length ? fitting : [1]).reduce((a, b) =>
      Math.abs(Math.log(seconds / b / 12)) < Math.abs(Math.log(seconds / a / 12)) ? b : a);
    speed.value = String(seconds >= 3 && seconds <= 60 ? 1 : best);
    // A file of a few rows must be visible, one of many must fit a screen.
    const rows = Math.max(1, bands.reduce((sum, band) => sum + band.rows, 0));
    const rowPixels = Math.min(10, Math.max(2, Math.floor(640 / rows)));
    for (const { places, times, rows: height } of bands) {
      places.style.height = times.style.height = `${Math.max(10, height * rowPixels)}px`;
    }
    find(".player").hidden = false;
    redraw();
    return redraw;
  }

  const redraws = pictures.map((picture) => {
    try {
      return player(picture);
    } catch (e) {
      tipoverFailed(`picture ${picture.title}: ${e}`);
      return null;
    }
  });
  // The page's charts are drawn anew when the theme changes, and so are these.
  addEventListener("tipover-drawn", () => redraws.forEach((redraw) => redraw?.()));
  const drawn = redraws.filter(Boolean).length;
  document.documentElement.dataset.pictures = `${drawn}/${pictures.length}`;
})();
