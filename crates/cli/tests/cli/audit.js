// What is wrong with a page in the present window and colours, as a list of sentences. `browser.rs` runs it.
(() => {
  const wrong = [];
  const name = (element) => element.outerHTML.slice(0, 120);
  const wide = document.documentElement;
  if (wide.scrollWidth > wide.clientWidth) {
    const out = [...document.body.querySelectorAll("*")].filter(
      (e) => e.getBoundingClientRect().right > wide.clientWidth + 1 && !e.parentElement.closest(".scroll, pre"),
    );
    wrong.push(`wider than the window: ${wide.scrollWidth} of ${wide.clientWidth}: ${out.slice(0, 3).map(name).join(" | ")}`);
  }

  // Contrast of all text, by WCAG 2.2: 1.4.3. The ground is the canvas, or the nearest ground of an element.
  const rgba = (text) => {
    const canvas = rgba.canvas || (rgba.canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true }));
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (front, back, alpha) => front.slice(0, 3).map((c, i) => c * alpha + back[i] * (1 - alpha));
  const light = (color) => {
    const [r, g, b] = color.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const probe = document.createElement("i");
  probe.style.background = "Canvas";
  document.body.append(probe);
  const canvas = rgba(getComputedStyle(probe).backgroundColor);
  probe.remove();
  const seen = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("title, style") || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    let ground = canvas;
    let alpha = 1;
    for (let up = element; up; up = up.parentElement) alpha *= getComputedStyle(up).opacity;
    for (let up = element; up; up = up.parentElement) {
      const own = rgba(getComputedStyle(up).backgroundColor);
      if (own[3] > 0) { ground = over(own, canvas, own[3]); break; }
    }
    const color = rgba(element.closest("svg") ? style.fill : style.color);
    const front = light(over(color, ground, color[3] * alpha));
    const back = light(ground);
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    const key = `${style.color} ${style.fill} ${alpha} ${ground}`;
    if (ratio < 4.5 && !seen.has(key)) {
      seen.add(key);
      wrong.push(`contrast ${ratio.toFixed(2)}: ${node.data.trim().slice(0, 60)} in ${name(element)}`);
    }
  }

  const levels = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].map((head) => Number(head.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1 || levels[0] !== 1) wrong.push(`not one h1 at the start: ${levels}`);
  levels.forEach((level, at) => { if (at && level > levels[at - 1] + 1) wrong.push(`a heading is skipped: ${levels}`); });
  if (!document.querySelector("main")) wrong.push("no main part");
  if (!document.title.trim() || !document.documentElement.lang) wrong.push("no title or no language");

  for (const drawing of document.querySelectorAll("svg")) {
    if (drawing.getAttribute("aria-hidden") === "true") continue;
    if (drawing.getAttribute("role") !== "img" || !(drawing.getAttribute("aria-label") || "").trim()) wrong.push(`a drawing without a name: ${name(drawing)}`);
  }
  // Texts of drawings: large enough, and not cut.
  for (const text of document.querySelectorAll("svg text")) {
    const drawing = text.closest("svg").getBoundingClientRect();
    const size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().d;
    if (size < 10) wrong.push(`letters of ${size.toFixed(1)} px: ${text.textContent}`);
    const box = text.getBoundingClientRect();
    if (box.left < drawing.left - 2 || box.right > drawing.right + 2 || box.top < drawing.top - 4 || box.bottom > drawing.bottom + 2) {
      wrong.push(`a text is cut: ${text.textContent}`);
    }
  }
  for (const table of document.querySelectorAll("table")) {
    const heads = [...table.querySelectorAll("th")];
    if (!heads.length || heads.some((head) => !head.hasAttribute("scope"))) wrong.push(`a head of a table without a scope: ${name(table)}`);
  }
  for (const link of document.querySelectorAll("a[href^='#']")) {
    if (!document.getElementById(link.getAttribute("href").slice(1))) wrong.push(`a link to nothing: ${name(link)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => wrong.push(`two parts with the id ${id}`));
  // What scrolls by itself must be reachable without a mouse (WCAG 2.1.1).
  for (const part of document.querySelectorAll("body *")) {
    const flow = getComputedStyle(part).overflowX;
    const scrolls = (flow === "auto" || flow === "scroll") && part.scrollWidth > part.clientWidth;
    if (scrolls && part.getAttribute("tabindex") !== "0") wrong.push(`scrolls, but has no focus: ${name(part)}`);
  }
  return wrong;
})()
