// Switches variants on and off, opens the run that was clicked, and lays the routing of two variants side by side.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const boxes = [...document.querySelectorAll("input[data-switch]")];

  const apply = () => {
    const on = new Set(boxes.filter((box) => box.checked).map((box) => box.dataset.switch));
    window.pagePlots.show((meta) => on.has(meta.variant));
    for (const element of document.querySelectorAll("[data-variant]")) {
      element.hidden = !on.has(element.dataset.variant);
    }
  };
  for (const box of boxes) box.addEventListener("change", apply);
  for (const button of document.querySelectorAll("button[data-all]")) {
    button.addEventListener("click", () => {
      for (const box of boxes) if (box.dataset.switch !== data.paper) box.checked = button.dataset.all === "1";
      apply();
    });
  }

  for (const button of document.querySelectorAll("button[data-family]")) {
    button.addEventListener("click", () => {
      const members = boxes.filter((box) => box.dataset.of === button.dataset.family);
      const on = !members.some((box) => box.checked);
      for (const box of members) box.checked = on;
      apply();
    });
  }

  const open = (anchor) => {
    const target = document.getElementById(anchor);
    if (!target) return;
    for (let element = target; element; element = element.parentElement) {
      if (element.tagName === "DETAILS") element.open = true;
    }
    for (const old of document.querySelectorAll(".aimed")) old.classList.remove("aimed");
    if (target.classList.contains("one")) target.classList.add("aimed");
    const recipe = target.querySelector(".one details") || target.querySelector("details");
    if (recipe) recipe.open = true;
    target.scrollIntoView({ block: "start" });
    const summary = target.closest("details").querySelector("summary");
    summary.focus({ preventScroll: true });
  };
  const follow = () => {
    const anchor = decodeURIComponent(location.hash.slice(1));
    if (anchor.startsWith("run-")) open(anchor);
  };
  window.addEventListener("hashchange", follow);
  for (const plot of document.querySelectorAll(".plot")) {
    plot.on("plotly_click", (event) => {
      const point = event.points[0];
      const meta = point.data.meta || {};
      const anchor = typeof point.customdata === "string" ? point.customdata : meta.anchor;
      if (!anchor) return;
      if (location.hash === "#" + anchor) open(anchor);
      else location.hash = anchor;
    });
  }
  follow();

  const size = document.getElementById("ribbon-size");
  if (!size) return;
  const [left, right, layer] = ["left", "right", "layer"].map((name) => document.getElementById("ribbon-" + name));
  const columns = document.getElementById("ribbon-columns");

  const paint = (element, [name, hue]) => {
    if (name) element.classList.add(name);
    else {
      element.classList.add("xh");
      element.style.setProperty("--h", hue);
    }
  };
  const strip = (variant, at) => {
    const line = document.createElement("div");
    line.className = "strip-line";
    const name = document.createElement("span");
    name.className = "strip-name";
    name.textContent = at;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "strip");
    svg.setAttribute("viewBox", `0 0 ${variant.ids.length} 1`);
    svg.setAttribute("preserveAspectRatio", "none");
    variant.ids.forEach((token, number) => {
      const expert = token[at][0];
      const cell = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [key, value] of [["x", number], ["width", 1], ["height", 1]]) cell.setAttribute(key, value);
      if (expert >= 0) paint(cell, variant.colours[expert]);
      svg.append(cell);
    });
    line.append(name, svg);
    return line;
  };
  const text = (pieces, variant, at) => {
    const passage = document.createElement("div");
    passage.className = "passage";
    pieces.forEach((piece, number) => {
      const token = document.createElement("span");
      const [expert] = variant.ids[number][at];
      token.className = "tok";
      token.textContent = piece;
      if (expert >= 0) paint(token, variant.colours[expert]);
      const moved = number > 0 && variant.ids[number - 1][at][0] !== expert;
      if (moved) token.classList.add("sw");
      if (!piece) token.classList.add("part");
      else if (piece.includes("\n")) token.classList.add("nl");
      if (token.classList.contains("xh") && (moved || number === 0)) token.dataset.e = expert;
      token.title = "experts " + variant.ids[number][at].filter((each) => each >= 0).join(", ");
      passage.append(token);
    });
    return passage;
  };
  const switches = (variant, at) =>
    variant.ids.filter((token, number) => number > 0 && variant.ids[number - 1][at][0] !== token[at][0]).length;

  const draw = () => {
    const { pieces, variants } = data.ribbons[size.value];
    const at = Number(layer.value);
    columns.replaceChildren(
      ...[left, right].map((choice) => {
        const variant = variants[choice.value];
        const column = document.createElement("div");
        const heading = document.createElement("h3");
        heading.textContent = `${variant.label}, seed ${variant.seed}`;
        const count = document.createElement("p");
        count.className = "caption";
        count.textContent = `Layer ${at}: ${switches(variant, at)} switches in ${pieces.length - 1} pairs.`;
        const strips = variant.ids[0].map((_, number) => strip(variant, number));
        column.append(heading, ...strips, count, text(pieces, variant, at));
        return column;
      }),
    );
  };
  const fill = () => {
    const { variants } = data.ribbons[size.value];
    for (const choice of [left, right]) {
      choice.replaceChildren(...variants.map((variant, number) => new Option(variant.label, number)));
    }
    const first = variants.findIndex((variant) => variant.variant === "vanilla");
    left.value = Math.max(0, first);
    right.value = Math.max(0, variants.length - 1 === Number(left.value) ? 0 : variants.length - 1);
    const strongest = variants.findIndex((variant) => variant.variant === "soft-0.5");
    if (strongest >= 0) right.value = strongest;
    layer.replaceChildren(...variants[0].ids[0].map((_, number) => new Option(number, number)));
    draw();
  };
  for (const name of Object.keys(data.ribbons)) size.add(new Option(name, name));
  size.addEventListener("change", fill);
  for (const choice of [left, right, layer]) choice.addEventListener("change", draw);
  fill();
})();
