// A question stands above folded results. What the reader commits is kept in this browser and unfolds them.
// And a row of pictures, one for each position of a control, becomes one picture with a switch.
document.addEventListener("DOMContentLoaded", () => {
  const make = (tag, attributes, text = "") => Object.assign(document.createElement(tag), attributes, { textContent: text });
  const kept = (key) => JSON.parse(localStorage.getItem(`course:${key}`) || "null");
  const waiting = (element) => [...element.classList].filter((name) => name.startsWith("tag_until-"));

  const folds = (cell) => [...cell.querySelectorAll("details.hide")].filter((fold) => fold.querySelector(".cell_output"));

  document.querySelectorAll(".cell").forEach((cell) => {
    const next = cell.querySelector(".course-question") && "The next question";  // a lesson folds one that tells too much
    if (!next && !waiting(cell).length) return;
    folds(cell).forEach((fold) => {
      fold.querySelector("summary").textContent = next || "Commit above, or unfold";
    });
  });

  const known = (keys) => keys.length && keys.every((name) => document.body.dataset[name.replace(/\W/g, "")]);
  const unfold = () => {
    document.querySelectorAll(".cell").forEach((cell) => {
      if (!known(waiting(cell))) return;
      folds(cell).forEach((fold) => {
        fold.open = true;
        fold.querySelector("summary").textContent = "The result";
      });
    });
    document.querySelectorAll("details[data-until]").forEach((fold) => { // the text that goes with it
      if (known(fold.dataset.until.split(" "))) fold.open = true;
    });
  };

  const committed = (box, given) => {
    const key = box.dataset.key;
    document.body.dataset[`tag_until-${key.replaceAll(".", "-")}`.replace(/\W/g, "")] = "yes";
    document.querySelectorAll(`.course-result[data-key="${key}"] .course-you`).forEach((place) => { place.textContent = `You said: ${given}`; });
    const status = box.querySelector("[role=status]");
    if (box.contains(document.activeElement)) status.focus(); // what has the focus is not disabled
    box.querySelectorAll("input, button").forEach((field) => { field.disabled = true; });
    box.querySelector("[role=status]").textContent = `✔ Committed: ${given.replace(/\.$/, "")}. It is kept in this browser only.`;
    unfold();
  };

  document.querySelectorAll(".course-question").forEach((box, place) => {
    const options = [...box.querySelectorAll("ol li")];
    const form = make("form", { className: "course-form" });
    options.forEach((option, i) => {
      const field = make("input", { type: "radio", name: `question-${place}`, id: `q${place}-${i}`, value: "abcdefgh"[i], required: true });
      const label = make("label", { htmlFor: field.id }, ` ${"abcdefgh"[i]}) ${option.textContent}`);
      form.append(field, label, make("br", {}));
    });
    if (options.length) box.querySelector("ol").remove();
    if (options.length && box.dataset.also.includes("reason")) {
      const label = make("label", { className: "course-field" }, "because ");
      label.append(make("input", { type: "text", name: "reason", size: 30 }));
      form.append(label, make("br", {}));
    }
    const asked = options.length ? [] : [["answer", "I expect"], ...(box.dataset.also.includes("range") ? [["low", "at least"], ["high", "at most"]] : [])];
    asked.forEach(([name, words]) => {
      if (name === "low") form.append(make("p", { className: "course-range" }, "80 % sure that it lies between:"));
      const label = make("label", { className: "course-field" }, `${words} `);
      label.append(make("input", { type: "number", step: "any", name, size: 8, required: name === "answer" }), ` ${box.dataset.unit} `);
      form.append(label);
    });
    const button = make("button", { type: "submit" }, "Commit");
    const state = make("p", { tabIndex: -1 });
    state.setAttribute("role", "status");
    form.append(button);
    box.querySelector(".course-code-form")?.remove();
    box.append(form, state);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const data = new FormData(form);
      const letter = data.get(`question-${place}`);
      const range = data.get("low") && data.get("high") ? ` (at least ${data.get("low")}, at most ${data.get("high")})` : "";
      const because = data.get("reason")?.trim() ? `, because ${data.get("reason").trim()}` : "";
      const given = letter ? `${letter}) ${options["abcdefgh".indexOf(letter)].textContent.replace(/\.$/, "")}${because}` : `${data.get("answer")} ${box.dataset.unit}`.trim() + range;
      localStorage.setItem(`course:${box.dataset.key}`, JSON.stringify(given));
      committed(box, given);
    });
    const before = kept(box.dataset.key);
    if (before) committed(box, before);
  });

  // What a cell printed is wrapped on a narrow screen where it is text, and scrolled where it stands in columns.
  document.querySelectorAll(".cell_output pre").forEach((printed) => {
    printed.classList.toggle("course-text", !/\S {2,}\S/.test(printed.textContent));
  });

  document.querySelectorAll(".small-multiples").forEach((row, place) => {
    const pictures = [...row.children];
    const controls = make("p", { className: "course-switch" });
    controls.setAttribute("role", "radiogroup");
    const show = (chosen) => pictures.forEach((one, i) => { one.hidden = i !== chosen; });
    pictures.forEach((picture, i) => {
      const field = make("input", { type: "radio", name: `switch-${place}`, checked: i === 0 });
      const label = make("label", {}, "");
      field.addEventListener("change", () => show(i));
      label.append(field, ` ${picture.querySelector("p").textContent}  `);
      controls.append(label);
    });
    row.before(controls);
    row.classList.add("course-one");
    show(0);
  });
});
