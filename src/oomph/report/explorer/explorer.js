// The plan explorer: looks up predictions at the position of the controls, and shows them.
"use strict";
(() => {
  const table = JSON.parse(document.getElementById("explorer-table").textContent);
  const GIB = 2 ** 30;
  const byId = (id) => document.getElementById(id);

  // ---- The lookup, as PredictionTable.lookup in Python ----

  // The place of a value in ascending values, or of the next larger one.
  function column(values, value) {
    const index = values.findIndex((other) => other >= value);
    return index < 0 ? values.length - 1 : index;
  }

  function onLine(values, numbers, value) {
    if (values.length === 1) return numbers[0];
    const right = Math.min(Math.max(column(values, value), 1), values.length - 1);
    const share = (value - values[right - 1]) / (values[right] - values[right - 1]);
    return numbers[right - 1] + share * (numbers[right] - numbers[right - 1]);
  }

  const larger = (first, second) => (second[0] > first[0] ? second : first);

  // What torch's allocator reserves, followed by the composition of the peak.
  function needOf(steps, position) {
    const row = table.sizes.indexOf(position.size);
    const here = column(table.samples, position.micro_batch);
    const rest = position.batch - position.micro_batch;
    const alone = table.grids[steps.alone][row], accumulating = table.grids[steps.accumulating][row];
    if (!rest) return alone[here];
    if (rest >= position.micro_batch) return accumulating[here];
    return larger(alone[here], accumulating[column(table.samples, rest)]);
  }

  function stepSeconds(position, steps) {
    const key = `${position.device}|${position.precision}|${position.checkpointing}`;
    const bySamples = table.seconds[key][table.sizes.indexOf(position.size)];
    const full = Math.floor(position.batch / position.micro_batch);
    const rest = position.batch % position.micro_batch;
    const count = full + (rest ? 1 : 0);
    let running = full * bySamples[column(table.samples, position.micro_batch)] + (count - 1) * table.sum_seconds[key];
    running += rest ? onLine(table.samples, bySamples, rest) : 0;
    running += table.update_seconds[`${position.device}|${position.precision}|${position.optimizer}`];
    const updating = table.update_launching[`${position.precision}|${position.optimizer}`];
    const launching = count * steps.launching + (count - 1) * steps.launching_sums + updating;
    const norm = table.overlap_exponent;
    return table.overlaps ? (running ** norm + launching ** norm) ** (1 / norm) : running;
  }

  function lookup(position) {
    const device = table.devices.find((other) => other.name === position.device);
    const steps = table.steps[`${device.group}|${position.precision}|${position.checkpointing}|${position.optimizer}`];
    const [reserved, ...kinds] = needOf(steps, position);
    const [low, value, high] = device.outside;
    return {
      device,
      reserved,
      kinds,
      low: reserved * steps.low + low,
      value: reserved + value,
      high: reserved * steps.high + high,
      seconds: stepSeconds(position, steps),
      fits: reserved * steps.high + high <= device.memory,
    };
  }

  // ---- Texts ----

  function sizeText(bytes) {
    const [factor, unit] = bytes >= GIB * 0.9995 ? [GIB, "GiB"] : [2 ** 20, "MiB"];
    const value = bytes / factor;
    const digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return `${digits ? Number(value.toFixed(digits)) : Math.round(value)} ${unit}`;
  }

  const rateText = (rate) => (rate < 10 ? rate.toPrecision(2) : Math.round(rate).toLocaleString("en"));

  function secondsText(seconds) {
    return seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : `${Number(seconds.toPrecision(3))} s`;
  }

  // plotly reads < and & in texts as markup.
  const chartText = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function settingsText(position) {
    const pieces = position.micro_batch === position.batch ? "in one piece" : `micro-batches of ${position.micro_batch}`;
    const recomputed = position.checkpointing === "none" ? "" : `, ${position.checkpointing} recomputed`;
    return `${position.precision}, ${pieces}${recomputed}, ${position.optimizer} update`;
  }

  function commands(position) {
    const { job, devices, checkpointings, fixed } = table.command;
    const shared = `${job} --gpu ${devices[position.device]} --batch ${position.batch}`;
    const size = table.sizes_problem ? table.command.size : ` --size ${position.size}`;
    const micro = position.micro_batch < position.batch ? ` --micro-batch ${position.micro_batch}` : "";
    const precision = ` --precision ${position.precision}`;
    const recomputed = position.checkpointing === "none" ? "" : ` --checkpointing ${checkpointings[position.checkpointing]}`;
    const optimizer = position.optimizer === "given" ? "" : ` --optimizer ${position.optimizer}`;
    return {
      predict: `oomph predict ${shared}${micro}${size}${precision}${recomputed}${optimizer}${fixed}`,
      plan: `oomph plan ${shared}${size}${precision}`,
    };
  }

  // ---- The controls ----

  // All of a batch, or pieces of which at least two are alike.
  const microBatches = (batch) => table.samples.filter((samples) => 2 * samples <= batch + 1 || samples === batch);
  const values = { batch: () => table.samples, micro_batch: microBatches, size: () => table.sizes };
  const selects = ["device", "precision", "checkpointing", "optimizer"];

  // The micro-batches that the slider moves over: those of the batch that was shown last.
  let offered = table.samples;

  function position() {
    const batch = table.samples[byId("batch").value];
    const chosen = Math.min(offered[byId("micro_batch").value], batch);
    const micro_batch = microBatches(batch).filter((samples) => samples <= chosen).at(-1);
    const choices = selects.map((name) => [name, byId(name).value]);
    return { batch, micro_batch, size: table.sizes[byId("size").value], ...Object.fromEntries(choices) };
  }

  function place(current) {
    offered = microBatches(current.batch);
    byId("micro_batch").max = offered.length - 1;
    for (const [name, among] of Object.entries(values)) byId(name).value = among(current.batch).indexOf(current[name]);
  }

  function moveTo(target) {
    place(target);
    for (const name of selects) byId(name).value = target[name];
    show();
  }

  function showControls(current) {
    place(current);
    const count = Math.ceil(current.batch / current.micro_batch);
    const texts = {
      batch: `${current.batch}`,
      micro_batch: count === 1 ? `${current.micro_batch}, in one piece` : `${current.micro_batch}, ${count} for each batch`,
      size: table.sizes_problem ? table.size_text : `${current.size}`,
    };
    for (const [name, text] of Object.entries(texts)) {
      byId(`${name}-value`).textContent = text;
      byId(name).setAttribute("aria-valuetext", text);
    }
  }

  // ---- The results ----

  const isAt = (one, other) => Object.keys(one).every((name) => one[name] === other[name]);

  function showSummary(current, estimate) {
    const { device } = estimate;
    const verdict = byId("verdict");
    const room = estimate.fits ? device.memory - estimate.high : estimate.high - device.memory;
    verdict.textContent = estimate.fits
      ? `Fits on ${device.name}, with ${sizeText(room)} to spare.`
      : `May not fit on ${device.name}: up to ${sizeText(room)} too much.`;
    verdict.className = `state ${estimate.fits ? "good" : "bad"}`;
    const rate = current.batch / estimate.seconds;
    byId("memory").textContent = sizeText(estimate.value);
    byId("memory-range").textContent = `${sizeText(estimate.low)} to ${sizeText(estimate.high)}, traced`;
    byId("limit").textContent = sizeText(device.memory);
    byId("rate").textContent = `${rateText(rate)} samples/s`;
    byId("rate-range").textContent = `${rateText(rate / table.time_range)} to ${rateText(rate * table.time_range)}, assumed`;
    byId("seconds").textContent = secondsText(estimate.seconds);
    byId("is-plan").textContent = table.plan && isAt(table.plan, current) ? "This is the plan." : "";
    for (const [name, text] of Object.entries(commands(current))) {
      byId(`${name}-command`).textContent = text;
      byId(`${name}-copy`).dataset.copy = text;
    }
  }

  function draw(plot, data, layout) {
    Plotly.react(plot, data, { ...layout, template: window.oomphPage.template() }, window.oomphPage.config);
  }

  const limitLine = (memory) => ({
    type: "line", x0: memory / GIB, x1: memory / GIB, yref: "paper", y0: 0, y1: 1, line: { color: "#d0342c", width: 2, dash: "dash" },
  });
  const limitLabel = (device) => ({
    x: device.memory / GIB, xanchor: "right", yref: "paper", y: 1, yanchor: "bottom", showarrow: false, text: `limit ${sizeText(device.memory)}`,
    font: { color: "#d0342c" },
  });

  function showBar(estimate) {
    const { reserved, kinds, device } = estimate;
    const cached = Math.max(reserved - kinds.reduce((sum, size) => sum + size, 0), 0);
    const parts = table.kinds.map((name, index) => [name, kinds[index]]);
    parts.push(["cached by the allocator", cached], [table.outside_name, device.outside[1]]);
    const bars = parts.map(([name, size]) => ({
      type: "bar", orientation: "h", y: [""], x: [size / GIB], name,
      text: [sizeText(size)], textposition: "none", hovertemplate: `${name}: %{text}<extra></extra>`,
    }));
    const range = {
      type: "scatter", mode: "markers", y: [""], x: [estimate.value / GIB], name: "range", showlegend: false,
      marker: { symbol: "line-ns", size: 14, line: { width: 2, color: "#7a7a7a" }, color: "#7a7a7a" },
      error_x: { type: "data", symmetric: false, array: [(estimate.high - estimate.value) / GIB],
        arrayminus: [(estimate.value - estimate.low) / GIB], color: "#7a7a7a", thickness: 2 },
      text: [`${sizeText(estimate.low)} to ${sizeText(estimate.high)}`], hovertemplate: "%{text}<extra></extra>",
    };
    draw(byId("memory-bar"), [...bars, range], {
      barmode: "stack", height: innerWidth < 600 ? 420 : 260, margin: { l: 16, r: 16, t: 28, b: 40 },
      xaxis: { title: { text: "GiB" }, range: [0, Math.max(device.memory, estimate.high) / GIB * 1.05] },
      yaxis: { visible: false }, shapes: [limitLine(device.memory)], annotations: [limitLabel(device)],
      legend: { orientation: "h", y: -0.45, traceorder: "normal" },
    });
    byId("memory-bar").setAttribute("aria-label", `Memory by kind: ${parts.filter(([, size]) => size).map(([name, size]) => `${name} ${sizeText(size)}`).join(", ")}.`);
  }

  // ---- The front ----

  const possible = (choices) => choices.filter((choice) => !choice.problem).map((choice) => choice.name);

  function point(target) {
    const estimate = lookup(target);
    return { target, memory: estimate.high, fits: estimate.fits, rate: target.batch / estimate.seconds };
  }

  // All settings with the current GPU, batch and size, in one precision.
  function pointsOf(precision, optimizers, current) {
    return possible(table.checkpointings).flatMap((checkpointing) => optimizers.flatMap((optimizer) =>
      microBatches(current.batch).map((micro_batch) => point({ ...current, precision, checkpointing, optimizer, micro_batch }))));
  }

  // What is faster than everything that needs less memory.
  function frontOf(points) {
    points.sort((one, other) => one.memory - other.memory || other.rate - one.rate);
    let best = 0;
    return points.filter(({ rate }) => {
      const isFaster = rate > best * 1.005;  // closer ones can't be told apart
      if (isFaster) best = rate;
      return isFaster;
    });
  }

  const scatter = (name, points, look) => ({
    type: "scatter", mode: "markers", name, x: points.map(({ memory }) => memory / GIB), y: points.map(({ rate }) => rate),
    customdata: points.map(({ target }) => target), hovertemplate: "%{text}<extra></extra>",
    text: points.map(({ target, memory, rate }) => chartText(`${settingsText(target)}: up to ${sizeText(memory)}, ${rateText(rate)} samples/s`)),
    ...look,
  });
  const mark = (symbol, size) => ({ marker: { symbol, size, color: "#7a7a7a", line: { width: 2, color: "#7a7a7a" } } });

  function showFront(current, estimate) {
    const fronts = possible(table.precisions).map((precision) => (
      { precision, points: frontOf(pointsOf(precision, possible(table.optimizers), current)) }));
    const others = pointsOf(current.precision, [current.optimizer], current);
    const data = [
      scatter(`other settings in ${current.precision}`, others, { marker: { size: 6, color: "#7a7a7a", opacity: 0.45 } }),
      ...fronts.map(({ precision, points }) => (
        scatter(precision, points, { mode: "lines+markers", line: { shape: "hv", width: 1 }, marker: { size: 9 } }))),
      scatter("this position", [point(current)], mark("circle-open", 18)),
    ];
    const isComparable = table.plan && ["device", "batch", "size"].every((name) => table.plan[name] === current[name]);
    if (isComparable) data.push(scatter("the plan", [point(table.plan)], mark("star-open", 22)));
    draw(byId("front"), data, {
      height: innerWidth < 600 ? 460 : 420, margin: { l: 64, r: 16, t: 28, b: 48 },
      xaxis: { title: { text: "memory up to, GiB" }, rangemode: "tozero" },
      yaxis: { title: { text: "samples/s" }, rangemode: "tozero" },
      shapes: [limitLine(estimate.device.memory)], annotations: [limitLabel(estimate.device)],
      legend: { orientation: "h", y: -0.2 }, hovermode: "closest",
    });
    shownFronts = fronts;
    if (byId("front-points").open) showFrontTable();
  }
  let shownFronts = [];

  function showFrontTable() {
    const body = byId("front-rows");
    body.replaceChildren(...shownFronts.flatMap(({ points }) => points).map(({ target, memory, rate, fits }) => {
      const row = document.createElement("tr");
      const cells = [settingsText(target), sizeText(memory), rateText(rate), fits ? "yes" : "no"];
      row.append(...cells.map((text, index) => {
        const cell = document.createElement(index ? "td" : "th");
        if (!index) cell.scope = "row";
        cell.textContent = text;
        return cell;
      }));
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Show";
      button.setAttribute("aria-label", `Show ${cells[0]}`);
      button.addEventListener("click", () => { moveTo(target); byId("verdict").scrollIntoView({ block: "center" }); });
      const last = document.createElement("td");
      last.append(button);
      row.append(last);
      return row;
    }));
  }

  // ---- Together ----

  let frame = 0;
  function show() {
    const current = position();
    const estimate = lookup(current);
    showControls(current);
    showSummary(current, estimate);
    showBar(estimate);
    cancelAnimationFrame(frame);  // while a slider moves, only the last front is drawn
    frame = requestAnimationFrame(() => showFront(current, estimate));
  }

  for (const name of [...Object.keys(values), ...selects]) byId(name).addEventListener("input", show);
  byId("to-start").addEventListener("click", () => moveTo(table.start));
  byId("front-points").addEventListener("toggle", () => { if (byId("front-points").open) showFrontTable(); });
  moveTo(table.start);
  // plotly offers its events once a chart is drawn.
  requestAnimationFrame(() => byId("front").on("plotly_click", (event) => moveTo(event.points[0].customdata)));
  window.oomphExplorer = { lookup, moveTo, position, show, commands };
})();
