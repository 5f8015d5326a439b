// The frame of a toy: goals with a ✔, a picture drawn from a state, handles for mouse, touch and
// keys, buttons, motion, and words for whoever does not see it. `define(toy)` stands at the end of
// `course/lessons/*/NAME.js`; a toy says
//   title    what it shows
//   start    () => the state at the beginning
//   goals    [{ text, met: (state) => boolean, after: what is said then }]; the last one's `after` is
//            the rule that the toy teaches: it is said large, below all goals
//   height   (state, width) => pixels
//   draw     (state, pen, width): all that is to be seen, each part under a name of its own
//   words    (state) => the same in words, with its figures
//   buttons  (state) => [{ label, press: (act) => ..., off: boolean, pressed: boolean }], if any
//   opening  (act) => what moves by itself at first, if anything does
// `act.move(seconds, step)` calls step with 0 to 1 as time passes, `act.change(step)` only once.

const INK = "currentColor", BLUE = "#0072b2", RED = "#d55e00", GREEN = "#009e73", YELLOW = "#f0e442";
const ORANGE = "#e69f00", SKY = "#56b4e9", PINK = "#cc79a7", SOFT = "#8a8a8a";
const HATCH = `<pattern id="toy-hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="2.6" height="7" fill="${RED}"/></pattern>`;
const ARROW = `<marker id="toy-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="context-stroke"/></marker>`;
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const html = (tag, attributes = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children);
  return element;
};

/** A stopwatch with its hand at so many ms; once around is 60. */
const stopwatch = (ms, color = INK) => {
  const turn = (2 * Math.PI * ms) / 60;
  return `<rect x="-2" y="-13" width="4" height="4" fill="${color}"/><circle r="9.5" fill="none" stroke="${color}" stroke-width="1.8"/>`
    + `<path d="M0 0L${(7 * Math.sin(turn)).toFixed(1)} ${(-7 * Math.cos(turn)).toFixed(1)}" stroke="${color}" stroke-width="2" stroke-linecap="round"/>`;
};

/** Draw into an SVG: a part that was there before is changed, one that is not drawn again goes. */
function penFor(svg, change) {
  const parts = new Map();
  let drawn, last;
  const put = (name, tag, attributes, inside = "") => {
    let part = parts.get(name);
    if (!part) {
      part = document.createElementNS("http://www.w3.org/2000/svg", tag);
      parts.set(name, part);
      if (last) last.after(part);
      else svg.prepend(part);
    }
    for (const [key, value] of Object.entries(attributes)) if (part.getAttribute(key) !== String(value)) part.setAttribute(key, value);
    if (part.shown !== inside) part.innerHTML = part.shown = inside;
    drawn.add(name);
    last = part;
    return part;
  };
  /** What can be moved along x: `value` in steps from `min` to `max`; x = zero + scale * value. */
  const handle = (name, attributes, inside, how) => {
    const fresh = !parts.has(name);
    const part = put(name, "g", {
      tabindex: 0, role: "slider", class: "toy-handle", "aria-label": how.label, "aria-valuemin": how.min, "aria-valuemax": how.max,
      "aria-valuenow": how.value, "aria-valuetext": how.words, ...attributes,
    }, inside);
    part.how = how;
    const set = (value) => {
      const { step = 1, min, max } = part.how;
      const next = clamp(Math.round(value / step) * step, min, max);
      if (next !== part.how.value) change(() => part.how.set(next));
    };
    if (!fresh) return;
    part.addEventListener("keydown", (event) => {
      const { step = 1, page = 5 * step, min, max, value } = part.how;
      const to = { ArrowRight: value + step, ArrowUp: value + step, ArrowLeft: value - step, ArrowDown: value - step,
        PageUp: value + page, PageDown: value - page, Home: min, End: max }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      set(to);
    });
    part.addEventListener("pointerdown", (event) => {
      part.setPointerCapture(event.pointerId);
      part.focus({ preventScroll: true });
      event.preventDefault();
      const { zero, scale, value } = part.how;
      const off = event.clientX - svg.getBoundingClientRect().left - (zero + scale * value);
      part.onpointermove = (moved) => set((moved.clientX - svg.getBoundingClientRect().left - off - part.how.zero) / part.how.scale);
    });
    for (const over of ["pointerup", "pointercancel"]) part.addEventListener(over, () => { part.onpointermove = null; });
  };
  const begin = () => { drawn = new Set(); last = null; };
  const end = () => parts.forEach((part, name) => { if (!drawn.has(name)) { part.remove(); parts.delete(name); } });
  const text = (name, x, y, words, attributes = {}) => put(name, "text", { x, y, fill: INK, ...attributes }, words);
  return { put, text, handle, begin, end };
}

/** A handful of confetti from where a ✔ has come. */
function cheer(from, colors = [BLUE, RED, GREEN, YELLOW, ORANGE, PINK]) {
  for (let i = 0; i < 18; i++) {
    const dot = html("i", { className: "toy-confetti" });
    dot.style.background = colors[i % colors.length];
    from.append(dot);
    const angle = (2 * Math.PI * i) / 18, far = 30 + 50 * Math.random();
    const fall = `translate(${far * Math.cos(angle)}px, ${far * Math.sin(angle) + 40}px) rotate(${720 * Math.random()}deg)`;
    dot.animate([{ transform: "none", opacity: 1 }, { transform: fall, opacity: 0 }], { duration: 1100, easing: "ease-out" }).onfinish = () => dot.remove();
  }
}

const define = (toy) => ({ render({ el }) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const state = toy.start();
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-label", toy.title);
  svg.innerHTML = `<defs>${HATCH}${ARROW}</defs>`;
  const goals = html("ol", { className: "toy-goals" }), row = html("p", { className: "toy-buttons" }), words = html("p", { className: "toy-words" });
  const tier = html("small", { className: "toy-tier" }, "MODELLED");
  tier.setAttribute("aria-hidden", true); // the words say it, too
  goals.setAttribute("aria-live", "polite");
  words.setAttribute("aria-live", "polite");
  const box = html("div", { className: "course-toy" }, html("b", {}, toy.title), goals, svg, row, tier, words);
  el.replaceChildren(box);
  let met = 0, width = 0, frame = 0, moving = false, motion, spoken;

  const finish = () => { // whoever does not wait for a motion's end sees its end
    cancelAnimationFrame(frame);
    if (moving) motion(1);
    moving = false;
  };
  const act = {
    change(step) { finish(); step(); show(); },
    move(seconds, step) {
      finish();
      const began = performance.now();
      motion = step;
      moving = !calm;
      const tick = (now) => {
        const share = calm ? 1 : clamp((now - began) / 1000 / seconds, 0, 1);
        moving = share < 1;
        step(share);
        show();
        if (moving && box.isConnected) frame = requestAnimationFrame(tick);
      };
      tick(began);
    },
  };
  const pen = penFor(svg, act.change);

  const tell = () => {
    const lines = toy.goals.slice(0, met + 1).map((goal, i) => {
      const sign = html("span", { className: "toy-sign" }, i < met ? "✔" : "▶");
      const after = i < met && i < toy.goals.length - 1 && goal.after ? html("i", {}, ` ${goal.after}`) : "";
      return html("li", { className: i < met ? "toy-met" : "" }, sign, html("span", {}, goal.text, after));
    });
    goals.replaceChildren(...lines);
    const more = toy.goals.length - met - 1;
    if (more > 0) goals.append(html("li", { className: "toy-later" }, html("span", { className: "toy-sign" }, "·"), `and ${more} more`));
    if (more < 0) {
      const rule = html("span", {}, "All goals met. ", html("b", {}, toy.goals.at(-1).after || ""));
      goals.append(html("li", { className: "toy-met toy-rule" }, html("span", { className: "toy-sign" }, "☺"), rule));
    }
  };
  const press = () => (toy.buttons ? toy.buttons(state) : []).forEach((button, i) => {
    const element = row.children[i] || row.appendChild(html("button", { type: "button" }));
    Object.assign(element, { textContent: button.label, disabled: false, onclick: () => button.press(act, state) });
    element.setAttribute("aria-disabled", Boolean(button.off)); // what has the focus is not disabled
    if ("pressed" in button) element.setAttribute("aria-pressed", button.pressed);
    if (button.off) element.onclick = null;
  });
  function show() {
    const height = toy.height(state, width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    pen.begin();
    toy.draw(state, pen, width);
    pen.end();
    press();
    if (moving) return;
    const before = met;
    while (met < toy.goals.length && toy.goals[met].met(state)) met++;
    if (met > before) {
      tell();
      if (!calm) cheer(goals.children[met - 1].firstChild);
    }
    clearTimeout(spoken);
    spoken = setTimeout(() => { words.textContent = `MODELLED: ${toy.words(state)}`; }, words.textContent ? 400 : 0);
  }

  // JupyterLab's own keys: it would take arrows and letters for commands; these two are its own.
  const keys = (event) => {
    if (!box.contains(event.target)) return;
    const theirs = event.key === "Escape" || (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.altKey || event.metaKey));
    event.target.toggleAttribute("data-lm-suppress-shortcuts", !theirs); // it asks what has the focus
    if (event.key === "Escape") box.closest(".jp-Cell")?.focus();
  };
  window.addEventListener("keydown", keys, true);
  box.addEventListener("focusin", ({ target }) => { // Shift+Tab comes to the buttons first: without this one plays blind
    const bars = 120; // of JupyterLab, above and below
    const hidden = box.getBoundingClientRect().top < bars, fits = box.offsetHeight < innerHeight - bars;
    if (hidden && fits && target.matches(":focus-visible")) box.scrollIntoView({ block: "end" });
  });
  const sized = new ResizeObserver(() => {
    const room = Math.floor(clamp(box.clientWidth - 24, 280, 720));
    if (room === width || !box.clientWidth) return; // the same, or folded away
    const first = !width;
    width = room;
    show();
    if (first && toy.opening && !calm) toy.opening(act, state);
  });
  tell();
  sized.observe(box);
  return () => { cancelAnimationFrame(frame); sized.disconnect(); window.removeEventListener("keydown", keys, true); };
} });
