// Draws the plots of the page and keeps them in step with its theme, its width, its selectors and the printer.
// What a page adds of its own finds `pagePlots.show(test)`: it shows the traces whose `meta` passes the test. A trace
// whose `meta` has a `frame`, the ranges of axes, lends it to the plot while it is shown.
(() => {
  "use strict";
  const drawings = JSON.parse(document.getElementById("plots").textContent);
  const PRINT_WIDTH = 940;
  const PRINT_HALF = 455; // two plots beside each other
  const ROOM_FOR_NAMES = 440; // in a narrower plot names beside points cover one another; a tap still tells them
  const PRINT = { ink: "#1b2026", muted: "#5c6670", grid: "#e2e5e8", rule: "#d5d9dd", card: "#ffffff" };
  let printing = false;

  const colour = (name) => {
    if (printing && PRINT[name]) return PRINT[name];
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  };
  const coloured = (value) => {
    if (typeof value === "string") return value.startsWith("var:") ? colour(value.slice(4)) : value;
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, coloured(inner)]));
    }
    return value;
  };

  const layoutOf = (drawing, element) => {
    const half = element.closest(".pair");
    const width = printing ? (half ? PRINT_HALF : PRINT_WIDTH) : element.clientWidth;
    const narrow = width < (half ? 400 : 560);
    const { tall, showlegend = drawing.data.length > 1, ...given } = drawing.layout;
    const wider = drawing.data.find((trace) => trace.meta && trace.meta.frame && trace.visible !== false);
    for (const [axis, range] of Object.entries(wider ? wider.meta.frame : {})) given[axis] = { ...given[axis], range };
    const legendRows = showlegend ? Math.ceil(drawing.data.length / (narrow ? 2 : 5)) : 0;
    return coloured({
      ...given,
      width,
      height: (tall ? 110 + (printing ? 19 : 34) * tall : narrow ? 330 : 380) + 20 * legendRows, // printed, tall ones fit a page
      margin: { l: narrow ? 44 : 60, r: 14, t: 10, b: 44 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: printing && tall ? 10 : narrow ? 11 : 12.5, color: "var:ink" },
      hoverlabel: { bgcolor: "var:card", bordercolor: "var:rule", font: { color: "var:ink" }, namelength: -1 },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom" },
      showlegend,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "var:muted", activecolor: "var:accent" },
    });
  };
  const settings = {
    displaylogo: false,
    displayModeBar: false,
    responsive: false,
    scrollZoom: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d"],
  };

  const draw = (id) => {
    const element = document.getElementById(id);
    if (!element) return;
    const drawing = drawings[id];
    (element.data || []).forEach((trace, number) => {
      drawing.data[number].visible = trace.visible; // what the reader chose in the legend stays
    });
    const unnamed = !printing && element.clientWidth < ROOM_FOR_NAMES;
    const data = coloured(drawing.data).map((trace) =>
      unnamed && trace.mode === "markers+text" ? { ...trace, mode: "markers" } : trace,
    );
    Plotly.react(element, data, layoutOf(drawing, element), settings);
    element.classList.add("drawn");
  };
  const drawAll = () => Object.keys(drawings).forEach(draw);

  const show = (isShown) => {
    for (const [id, drawing] of Object.entries(drawings)) {
      const element = document.getElementById(id);
      if (!element) continue;
      element.data.forEach((trace, number) => {
        if (drawing.data[number].meta) trace.visible = isShown(drawing.data[number].meta);
      });
      draw(id);
    }
  };

  const choose = (id, name) => {
    drawings[id].data.forEach((trace, number) => {
      trace.y = drawings[id].choices[name][number];
    });
    draw(id);
  };

  for (const [id, drawing] of Object.entries(drawings)) {
    const select = document.querySelector(`select[data-plot="${id}"]`);
    if (!select || !drawing.choices) continue;
    for (const name of Object.keys(drawing.choices)) select.add(new Option(name, name));
    select.addEventListener("change", () => choose(id, select.value));
    select.closest("label").hidden = false;
  }
  drawAll();
  window.pagePlots = { show };

  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width && !printing) {
      width = window.innerWidth;
      drawAll();
    }
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => {
    printing = true;
    drawAll();
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    drawAll();
  });
})();
