// A form in a notebook. What was typed and chosen goes to the kernel in one message, when it is
// handed over; the kernel's reply says what became of it. Nothing that has the focus is disabled.

let views = 0;

const make = (tag, attributes = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...children);
  return made;
};

const labelled = (field) => {
  const input = make("input", { type: "text", name: field.name, placeholder: field.hint, size: field.size, autocomplete: "off" });
  if (field.figure) input.inputMode = "decimal";
  return make("label", { className: "course-field" }, make("span", {}, field.label), input, ...(field.unit ? [make("span", {}, field.unit)] : []));
};

function render({ model, el }) {
  const ask = model.get("ask");
  const group = `course-${Date.now()}-${++views}`;
  const form = make("form", { noValidate: true });
  form.dataset.lmSuppressShortcuts = "true"; // or letters and arrows would be JupyterLab's commands
  form.addEventListener("focusin", ({ target }) => { // JupyterLab asks the element that has the focus
    if (target.matches("input, button, textarea")) target.dataset.lmSuppressShortcuts = "true";
  });
  const fields = make("fieldset", {}, make("legend", {}, make("b", {}, ask.heading), ` ${ask.text}`));
  (ask.options || []).forEach(([letter, text]) => {
    const input = make("input", { type: "radio", name: group, value: letter });
    fields.append(make("label", { className: "course-option" }, input, make("span", {}, text)));
  });
  (ask.rows || []).forEach((row) => {
    const line = make("div", { className: "course-row" }, ...(row.text ? [make("span", {}, row.text)] : []), ...row.fields.map(labelled));
    if (row.text) {
      line.setAttribute("role", "group");
      line.setAttribute("aria-label", row.text);
    }
    fields.append(line);
  });
  const buttons = make("div", { className: "course-buttons" });
  ask.buttons.forEach((one, place) => {
    const type = one.first ? "submit" : "button";
    const button = make("button", { type, textContent: one.label, title: one.title || "" });
    if (!one.first) button.addEventListener("click", () => hand(one.name, button));
    buttons.append(button);
  });
  fields.append(buttons);
  form.append(fields);
  const status = make("p", { className: "course-state", tabIndex: -1 });
  status.setAttribute("role", "status");
  const root = make("div", { className: `course-form ${ask.name}` }, form, status);
  el.append(root);

  const typed = () => [...form.querySelectorAll("input[type=text]")];
  const radios = () => [...form.querySelectorAll("input[type=radio]")];
  let waiting = null;

  const values = () => {
    const given = Object.fromEntries(typed().map((input) => [input.name, input.value]));
    const chosen = radios().find((input) => input.checked);
    return radios().length ? { ...given, answer: chosen ? chosen.value : "" } : given;
  };

  function hand(name) {
    if (waiting) return; // once is enough
    const given = values();
    root.classList.add("course-waiting");
    waiting = setTimeout(() => { status.textContent = ask.waiting; }, 300);
    model.send({ do: name, values: given });
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    hand(ask.buttons.find((one) => one.first)?.name);
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") status.focus(); // back to the notebook's own keys
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step && event.target.type === "radio") { // nor does it leave the arrows to them
      event.preventDefault();
      const all = radios();
      const next = all[(all.indexOf(event.target) + step + all.length) % all.length];
      next.checked = true;
      next.focus();
    }
    if (event.key === "Enter" && !event.isComposing) { // JupyterLab stops what Enter does by itself
      event.preventDefault();
      if (event.target.tagName === "BUTTON") event.target.click();
      else form.requestSubmit();
    }
  });

  function show(replied) {
    const reply = model.get("reply");
    const inside = root.contains(document.activeElement);
    if (reply.values && !(inside && reply.error)) {
      typed().forEach((input) => { input.value = reply.values[input.name] ?? ""; });
      radios().forEach((input) => { input.checked = input.value === reply.values.answer; });
    }
    status.textContent = reply.text;
    const again = ask.buttons.some((one) => one.name === "skip"); // a gate's: its cell is to be run again
    const next = !again && root.closest(".jp-Cell")?.nextElementSibling; // or Shift+Enter would ask once more
    if (replied && inside && !reply.error && !reply.stay) (next || status).focus();
    fields.disabled = !reply.open;
    buttons.hidden = !reply.open;
  }

  model.on("change:reply", () => {
    clearTimeout(waiting);
    if (model.get("reply").running) {
      status.textContent = model.get("reply").text;
      return;
    }
    waiting = null;
    root.classList.remove("course-waiting");
    show(true);
  });
  show(false);
}

export default { render };
