"use strict";
// Text of models and data sets reaches the page through textContent alone.
const data = JSON.parse(document.getElementById("data").textContent);
const find = (selector) => document.querySelector(selector);
const make = (tag, properties = {}) => Object.assign(document.createElement(tag), properties);
const format = (value) => (value === null ? "–" : String(Number(value.toPrecision(4))).replace("-", "−"));
const formatPercent = (share) => format(share === null ? null : 100 * share);
const formatSmall = (value) =>  // four decimals as in the paper, powers of ten where they would all be zero
  (value === null ? "–" : value >= 1e-3 || value === 0 ? value.toFixed(4) : value.toExponential(1).replace("-", "−"));
const swatch = (run) => {
  const element = make("i", { className: "swatch" });
  element.style.background = `var(--run-${run % 6})`;
  return element;
};

// ---- Theme
const theme = find("#theme");
const isDark = () =>
  (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.ariaLabel = `Switch to ${isDark() ? "light" : "dark"} colours`; };
theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
nameTheme();

// ---- Charts: what the pointer or the arrow keys choose is shown in a box, and by a hair line or ring in the figure
const tip = find("#tip");
const showTip = (lines, x, y) => {
  tip.replaceChildren(...lines.flatMap((line, index) => (index ? ["\n", ...line] : line)));
  tip.hidden = false;
  const width = document.documentElement.clientWidth;
  tip.style.left = `${Math.max(4, Math.min(x + 14, width - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 16 + scrollY}px`;
};
const hideTip = () => { tip.hidden = true; };
const draw = (svg, tag, attributes) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return svg.appendChild(element);
};
const scales = { linear: (value) => value, log: Math.log, function: (value) => Math.sqrt(Math.max(value, 0)) };  // as in scatter.py
const along = (value, [low, high], scale) => (scales[scale](value) - scales[scale](low)) / (scales[scale](high) - scales[scale](low));
const inSvg = (svg, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
const inPage = (svg, x, y) => new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
const hidden = new Set();

const charts = data.panels.map((panel) => {
  const element = document.getElementById(panel.name);
  const svg = element.querySelector("svg");
  const [left, top, right, bottom] = panel.frame.box;
  return { panel, element, svg, hair: draw(svg, "line", { class: "hair", y1: top, y2: bottom, visibility: "hidden" }) };
});
const allSteps = [...new Set(data.panels.flatMap((panel) => panel.series.flatMap((line) => line.steps)))].sort((a, b) => a - b);
const nearest = (sorted, value) => {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (sorted[middle] > value) high = middle; else low = middle; }
  return Math.abs(sorted[high] - value) < Math.abs(sorted[low] - value) ? high : low;
};
let step = null;
const chooseStep = (chart, value) => {
  step = allSteps[nearest(allSteps, value)];
  for (const { panel, hair } of charts) {
    const x = panel.frame.box[0] + along(step, panel.frame.x, "linear") * (panel.frame.box[2] - panel.frame.box[0]);
    hair.setAttribute("x1", x); hair.setAttribute("x2", x); hair.setAttribute("visibility", "visible");
  }
  const lines = [[`step ${step.toLocaleString("en")}`]];
  for (const line of chart.panel.series) {
    if (hidden.has(line.run) || !line.steps.length) continue;
    const place = nearest(line.steps, step);
    const label = [data.runs.length > 1 ? data.runs[line.run] : "", line.label].filter(Boolean).join(", ");
    const late = line.steps[place] === step ? "" : ` (step ${line.steps[place].toLocaleString("en")})`;
    lines.push([swatch(line.run), `${label} ${format(line.values[place])}${chart.panel.unit && ` ${chart.panel.unit}`}${late}`]);
  }
  const [, top] = chart.panel.frame.box;
  const point = inPage(chart.svg, Number(chart.hair.getAttribute("x1")), top);
  showTip(lines, point.x, point.y);
};
const leaveCharts = () => { hideTip(); for (const { hair } of charts) hair.setAttribute("visibility", "hidden"); };
for (const chart of charts) {
  const [left, , right] = chart.panel.frame.box;
  const [low, high] = chart.panel.frame.x;
  chart.svg.addEventListener("pointermove", (event) => {
    chooseStep(chart, low + ((inSvg(chart.svg, event).x - left) / (right - left)) * (high - low));
  });
  chart.svg.addEventListener("pointerleave", leaveCharts);
  chart.element.addEventListener("blur", leaveCharts);
  chart.element.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const place = step === null ? 0 : nearest(allSteps, step) + move;
    chooseStep(chart, allSteps[Math.max(0, Math.min(place, allSteps.length - 1))]);
  });
}
for (const box of document.querySelectorAll("[data-run]")) {
  box.addEventListener("change", () => {
    const run = Number(box.dataset.run);
    if (box.checked) hidden.delete(run); else hidden.add(run);
    for (const line of document.querySelectorAll(`#curves .run-${run}`)) line.style.display = box.checked ? "" : "none";
  });
}

const kinds = ["", "improbable, kept", "silenced"];
for (const sample of data.scatters) {
  const svg = document.getElementById(sample.name).querySelector("svg");
  const { box: [left, top, right, bottom], x, y, scale } = sample.frame;
  const xs = sample.prob.map((value) => left + along(Math.max(value, x[0]), x, scale[0]) * (right - left));
  const ys = sample.entropy.map((value) => bottom - along(value, y, scale[1]) * (bottom - top));
  const ring = draw(svg, "circle", { class: "ring", r: 4, visibility: "hidden" });
  svg.addEventListener("pointermove", (event) => {
    const at = inSvg(svg, event);
    let best = -1, distance = 100;
    xs.forEach((px, index) => {
      const d = (px - at.x) ** 2 + (ys[index] - at.y) ** 2 - sample.kind[index];  // of close ones the silenced one
      if (d < distance) { best = index; distance = d; }
    });
    ring.setAttribute("visibility", best < 0 ? "hidden" : "visible");
    if (best < 0) { hideTip(); return; }
    ring.setAttribute("cx", xs[best]); ring.setAttribute("cy", ys[best]);
    const lines = [[make("bdi", { textContent: sample.token[best] })], [`probability ${formatPercent(sample.prob[best])} %`],
      [`entropy ${format(sample.entropy[best])} nats, step ${sample.step[best].toLocaleString("en")}`]];
    if (sample.kind[best]) lines.push([kinds[sample.kind[best]]]);
    showTip(lines, event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", () => { hideTip(); ring.setAttribute("visibility", "hidden"); });
}

// ---- Table of spurious tokens
const PAGE = 25;
if (data.spurious.length) {
  const body = find("#tokens tbody"), search = find("#search"), ofRun = find("#of-run");
  const texts = data.spurious.map((row) => [row[2] + row[3] + row[4], row[9]].join("\n").toLowerCase());
  let rows = [], column = 1, direction = 1, page = 0;
  const compare = (first, second) => {
    const [a, b] = [data.spurious[first][column], data.spurious[second][column]];
    if (a === b) return first - second;
    if (a === null || b === null) return a === null ? 1 : -1;  // missing values last, in both directions
    return direction * (a < b ? -1 : 1);
  };
  const show = () => {
    const last = Math.max(0, Math.ceil(rows.length / PAGE) - 1);
    page = Math.max(0, Math.min(page, last));
    body.replaceChildren(...rows.slice(page * PAGE, (page + 1) * PAGE).map((index) => {
      const [run, step, before, token, after, prob, advantage, entropy, norm, top, edited] = data.spurious[index];
      const tr = make("tr");
      if (data.runs.length > 1) { const cell = make("td", { className: "run-cell" }); cell.append(swatch(run), data.runs[run]); tr.append(cell); }
      const context = make("td", { className: "context" });
      context.append(make("span", { textContent: before }), make("mark", { textContent: token }), make("span", { textContent: after }));
      const number = (text) => make("td", { className: "number", textContent: text });
      tr.append(number(step.toLocaleString("en")), context, number(formatSmall(prob)),
        number(edited === null ? format(advantage) : `${format(advantage)} → ${format(edited)}`), number(format(entropy)), number(format(norm)), make("td", { className: "top", textContent: top }));
      return tr;
    }));
    find("#found").textContent = `${rows.length.toLocaleString("en")} of ${data.spurious.length.toLocaleString("en")} rows`;
    find("#page").textContent = `page ${page + 1} of ${last + 1}`;
    find("#before").disabled = page === 0;
    find("#after").disabled = page === last;
  };
  const update = () => {
    const words = search.value.toLowerCase();
    rows = data.spurious.map((row, index) => index)
      .filter((index) => texts[index].includes(words) && (!ofRun?.value || data.spurious[index][0] === Number(ofRun.value)))
      .sort(compare);
    page = 0;
    show();
  };
  for (const button of document.querySelectorAll("#tokens thead button")) {
    button.addEventListener("click", () => {
      const chosen = Number(button.dataset.column);
      direction = chosen === column ? -direction : 1;
      column = chosen;
      for (const head of document.querySelectorAll("#tokens th[aria-sort]")) head.ariaSort = "none";
      button.parentElement.ariaSort = direction === 1 ? "ascending" : "descending";
      update();
    });
  }
  search.addEventListener("input", update);
  ofRun?.addEventListener("change", update);
  find("#before").addEventListener("click", () => { page -= 1; show(); });
  find("#after").addEventListener("click", () => { page += 1; show(); });
  update();
}

// ---- Completions
if (data.completions.length) {
  const select = find("#completion"), text = find("#text"), line = find("#token");
  let completion = null, chosen = -1;
  for (const [index, { run, step, problem, reward, advantage, silenced }] of data.completions.entries()) {
    const parts = [data.runs.length > 1 ? data.runs[run] : "", `step ${step}`, problem, `reward ${format(reward)}`,
      `advantage ${format(advantage)}`, `${silenced.length} silenced`];
    select.append(make("option", { value: index, textContent: parts.filter(Boolean).join(" · ") }));
  }
  const choose = (index) => {
    text.children[chosen]?.classList.remove("chosen");
    chosen = Math.max(0, Math.min(index, completion.tokens.length - 1));
    const span = text.children[chosen];
    span.classList.add("chosen");
    if (span.offsetTop < text.scrollTop || span.offsetTop > text.scrollTop + text.clientHeight - 30) text.scrollTop = span.offsetTop - 60;
    line.replaceChildren(make("bdi", { textContent: completion.tokens[chosen].replaceAll(" ", "␣") }),
      ` · position ${chosen} · probability ${formatPercent(completion.probs[chosen])} % · entropy ${format(completion.entropies[chosen])} nats`,
      completion.silenced.includes(chosen) ? " · silenced" : "");
  };
  const shade = () => {
    const by = find("[name=shade]:checked").value;
    const most = Math.max(...completion.entropies.filter((value) => value !== null), 1e-9);
    text.dataset.shade = by;
    completion.tokens.forEach((token, index) => {
      // Surprise, -log p, up to one in a thousand; entropy up to the highest of the completion
      const value = by === "prob" ? Math.min(1, -Math.log10(Math.max(completion.probs[index] ?? 1, 1e-9)) / 3) : (completion.entropies[index] ?? 0) / most;
      text.children[index].style.setProperty("--shade", value.toFixed(3));
    });
    find(".scale").hidden = by === "silenced";
    find("#low").textContent = by === "prob" ? "100 %" : "0";
    find("#high").textContent = by === "prob" ? "0.1 % or less" : `${format(most)} nats`;
  };
  const open = () => {
    completion = data.completions[select.value];
    chosen = -1;
    find("#prompt").textContent = completion.prompt;
    const silenced = new Set(completion.silenced);
    text.replaceChildren(...completion.tokens.map((token, index) =>
      // A new line is shown as a sign, and breaks the line as well
      make("span", { textContent: token.replaceAll("↵", "↵\n"), className: silenced.has(index) ? "silenced" : "" })));
    text.scrollTop = 0;
    line.textContent = completion.cut ? "The completion is longer than what is kept here." : "Point at a token, or focus the text and use the arrow keys.";
    shade();
  };
  text.addEventListener("pointerover", (event) => {
    const index = [...text.children].indexOf(event.target);
    if (index >= 0) choose(index);
  });
  text.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) { event.preventDefault(); choose(chosen + move); }
  });
  select.addEventListener("change", open);
  for (const radio of document.querySelectorAll("[name=shade]")) radio.addEventListener("change", shade);
  open();
}
