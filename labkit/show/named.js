export default { async render({ model, el }) {
  let box;
  const keys = (event) => {  // all but the keys that run a cell, and Escape
    if (!box?.contains(event.target)) return;
    const enter = event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.altKey);
    const theirs = enter || event.key === "Escape";
    event.target.toggleAttribute("data-lm-suppress-shortcuts", !theirs);
    if (event.key === "Escape") box.closest(".jp-Cell")?.focus();
  };
  const name = () => {
    box = el.closest(".labkit-explorer");
    if (!box) return;
    box.querySelectorAll(".widget-slider").forEach((slider) => {
      const label = slider.querySelector(".widget-label")?.textContent;
      slider.querySelectorAll("[role=slider], .widget-readout").forEach((part) => {
        part.setAttribute("aria-label", label);
      });
    });
    clearInterval(waiting);
  };
  const waiting = setInterval(name, 50);  // until it lies in the page
  window.addEventListener("keydown", keys, true);
  const find = (reference) => model.widget_manager.get_model(reference.slice("IPY_MODEL_".length));
  const fields = await Promise.all(model.get("fields").map(find));
  const dim = () => {
    const now = fields.map((field) => field.get("index") ?? field.get("value"));
    box?.classList.toggle("labkit-stale", String(now) !== String(model.get("drawn")));
  };
  model.on("change:drawn", dim);
  fields.forEach((field) => field.on("change:value change:index", dim));
  return () => {
    clearInterval(waiting);
    window.removeEventListener("keydown", keys, true);
    fields.forEach((field) => field.off("change:value change:index", dim));
  };
} };
