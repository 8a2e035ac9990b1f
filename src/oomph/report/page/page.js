// Draws the charts of a page, follows the color scheme, and copies commands.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const templates = JSON.parse(document.getElementById("chart-templates").textContent);
  const template = () => templates[dark.matches ? "dark" : "light"];
  const config = { displaylogo: false, responsive: true, showSendToCloud: false };

  const plots = Array.from(document.querySelectorAll(".plot[data-chart]"));
  // On a phone, a legend has a line for each series.
  const legendHeight = (data) => (innerWidth < 600 ? 20 * data.length : 0);
  for (const plot of plots) {
    const { data, layout } = JSON.parse(document.getElementById(plot.dataset.chart).textContent);
    const height = layout.height && layout.height + legendHeight(data);
    Plotly.newPlot(plot, data, { ...layout, height, template: template() }, config);
  }
  dark.addEventListener("change", () => {
    for (const plot of document.querySelectorAll(".plot.js-plotly-plot")) {
      Plotly.relayout(plot, { template: template() });
    }
  });

  // On paper, charts are as wide as the paper and tables are open.
  const paperWidth = 640;
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
    for (const plot of document.querySelectorAll(".plot.js-plotly-plot")) {
      Plotly.relayout(plot, { width: paperWidth, template: templates.light });
    }
  });
  window.addEventListener("afterprint", () => {
    for (const plot of document.querySelectorAll(".plot.js-plotly-plot")) {
      Plotly.relayout(plot, { width: null, autosize: true, template: template() });
    }
  });

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without permission for the clipboard (a file: page in some browsers), the old way.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    await copy(button.dataset.copy);
    const label = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  });
  window.oomphPage = { template, config };
})();
