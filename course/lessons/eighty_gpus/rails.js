// Three servers of four GPUs, each with a network card. A ring passes all twelve GPUs, and leaves
// every server by one card. Rings share the tensor equally; a card's share grows with its rings.

const RINGS = [0, 1, 2, 3], CARDS = [0, 1, 2, 3], NAMES = ["A", "B", "C", "D"], COLORS = [BLUE, RED, GREEN, PINK];
const CARD = 50, SICK = 5, OFF = -1;

const running = ({ leaves }) => RINGS.filter((ring) => leaves[ring] !== OFF);
const load = (state, card) => running(state).filter((ring) => state.leaves[ring] === card).length;
const rate = (state, card) => (state.sick && card === 2 ? SICK : CARD);

/** GB/s of bus bandwidth: all rings carry equal parts, so the slowest card holds all of them up. */
function busbw(state) {
  const used = CARDS.filter((card) => load(state, card));
  return running(state).length * Math.min(...used.map((card) => rate(state, card) / load(state, card)));
}

function run(act, state) {
  if (state.share < 1) return;
  state.reached = 0;
  act.move(clamp(150 / busbw(state), 0.8, 6), (share) => {
    state.share = share;
    if (share === 1) state.reached = Math.round(busbw(state));
  });
}

export default define({
  title: "Three servers, four network cards in each, and rings",
  start: () => ({ leaves: [0, OFF, OFF, OFF], sick: false, reached: 0, share: 1 }),
  goals: [
    {
      text: "One ring shows 50 GB/s. Reach 100: drag a second ring from its place “off” to a card (or Tab, then the arrow keys), and run.",
      met: ({ reached }) => reached === 100,
      after: "A second ring alone does nothing. It has to leave by another card.",
    },
    { text: "Reach 200 GB/s.", met: ({ reached }) => reached === 200, after: "Four cards, each with a ring of its own." },
    {
      text: "Make card 2 sick: it carries 5 GB/s instead of 50. Reach 150 all the same.",
      met: ({ reached, sick }) => sick && reached === 150,
      after: "Its ring held up all others. Left out, it costs a quarter. Bus bandwidth grows with the cards that carry, and the slowest of them sets the pace.",
    },
  ],
  height: () => 296,

  draw(state, pen, width) {
    const wide = Math.min(210, (width - 30) / 3), gap = (width - 8 - 3 * wide) / 2, step = (wide - 26) / 3;
    const at = (server, card) => 4 + server * (wide + gap) + 13 + step * card, rail = (ring) => 100 + 13 * ring;
    [0, 1, 2].forEach((server) => {
      pen.put(`server ${server}`, "rect", { x: 4 + server * (wide + gap), y: 20, width: wide, height: 68, rx: 6, fill: SOFT, "fill-opacity": 0.13, stroke: SOFT });
      pen.text(`name ${server}`, 4 + server * (wide + gap), 14, `server ${server}`, { "font-weight": "bold" });
      pen.put(`inside ${server}`, "path", { d: `M${at(server, 0)} 41H${at(server, 3)}`, stroke: SOFT, "stroke-width": 2 });
      CARDS.forEach((card) => {
        const used = load(state, card), sick = state.sick && card === 2, x = at(server, card);
        pen.put(`gpu ${server} ${card}`, "circle", { cx: x, cy: 41, r: 9, fill: "#fff", stroke: "#444" });
        pen.text(`rank ${server} ${card}`, x, 45, 4 * server + card, { "text-anchor": "middle", "font-size": 10, fill: "#222" });
        pen.put(`link ${server} ${card}`, "path", { d: `M${x} 50V66`, stroke: used ? INK : SOFT, "stroke-width": used ? 3 : 1 });
        pen.put(`card ${server} ${card}`, "rect", { x: x - 10, y: 66, width: 20, height: 16, rx: 2, fill: sick ? "#f4b8ae" : used ? YELLOW : "#fff", stroke: "#444" });
        pen.text(`number ${server} ${card}`, x, 78, card, { "text-anchor": "middle", "font-size": 10, fill: "#222" });
      });
    });
    running(state).forEach((ring) => {
      const card = state.leaves[ring], y = rail(ring), stubs = [0, 1, 2].map((server) => `M${at(server, card) + 3 * ring - 4} 82V${y}`).join("");
      pen.put(`rail ${ring}`, "path", { d: `${stubs}M${at(0, card) + 3 * ring - 4} ${y}H${at(2, card) + 3 * ring - 4}`, stroke: COLORS[ring], "stroke-width": 2.4, fill: "none" });
      if (state.share === 1) return;
      [0, 1, 2, 3].forEach((dot) => { // bytes between the servers, around and around
        const along = (4 * state.share + dot / 4) % 1;
        pen.put(`bytes ${ring} ${dot}`, "circle", { cx: at(0, card) + along * (at(2, card) - at(0, card)), cy: y, r: 4.5, fill: COLORS[ring] });
      });
    });
    const left = Math.min(96, width / 4), scale = (width - left - 40) / 4, place = (value) => left + scale * (value + 1);
    pen.text("places", 2, 156, "leaves by card", { opacity: 0.8 });
    [OFF, ...CARDS].forEach((value) => pen.text(`place ${value}`, place(value), 172, value === OFF ? "off" : value, { "text-anchor": "middle", opacity: 0.8 }));
    RINGS.forEach((ring) => {
      const y = 190 + 27 * ring, value = state.leaves[ring], off = value === OFF;
      pen.text(`ring ${ring}`, 2, y + 5, `ring ${NAMES[ring]}`, { fill: COLORS[ring], "font-weight": "bold" });
      pen.put(`track ${ring}`, "path", { d: `M${place(OFF)} ${y}H${place(3)}`, stroke: SOFT, "stroke-width": 1 });
      pen.handle(`handle ${ring}`, { transform: `translate(${place(value)} ${y})` },
        `<rect x="-22" y="-13" width="44" height="26" fill="transparent"/><circle r="9" fill="${off ? "#fff" : COLORS[ring]}" stroke="${COLORS[ring]}" stroke-width="2.5"/>`, {
          label: `ring ${NAMES[ring]}`, words: off ? "off" : `card ${value}`, value, min: ring ? OFF : 0, max: 3, page: 2, zero: place(0), scale,
          set(next) { state.leaves[ring] = next; Object.assign(state, { reached: 0, share: 1 }); },
        });
    });
  },

  words(state) {
    const k = running(state).length, shares = CARDS.filter((card) => load(state, card)).map((card) => `card ${card}: ${Math.round((100 * load(state, card)) / k)} %`);
    const figure = state.reached ? ` Bus bandwidth: ${state.reached} GB/s.` : " Not run yet.";
    return `Of the bytes that leave a server, ${shares.join(", ")}.${state.sick ? " Card 2 is sick." : ""}${figure}`;
  },
  buttons: (state) => [
    { label: "▶ all_reduce", press: run },
    { label: "Card 2 is sick", pressed: state.sick, press: (act) => act.change(() => Object.assign(state, { sick: !state.sick, reached: 0, share: 1 })) },
  ],
});
