// Three ranks with four lines each. A rank stands in a call until whoever it needs stands in the
// matching one: a receive needs its sender, an all_reduce all ranks. Whoever has returned is gone.

const RANKS = [0, 1, 2], HIGH = 30, ROW = 40, MAP = 178, DEEP = "#c00000";
const sick = (rank) => [
  { kind: "recv", peer: (rank + 2) % 3 }, { kind: "send", peer: (rank + 1) % 3 }, { kind: "all_reduce" }, { kind: "return" },
];
const named = ({ kind, peer }) => (kind === "recv" ? `recv from ${peer}` : kind === "send" ? `send to ${peer}` : kind);
const matches = (call, rank, other) => (call.kind === "all_reduce" ? other.kind === "all_reduce" : call.peer !== undefined
  && other.peer === rank && other.kind === (call.kind === "send" ? "recv" : "send"));

/** Where the ranks stand after these steps: each rank's line, and whether it stands in that call. */
function after({ lines, steps }) {
  const at = [0, 0, 0], inside = [false, false, false];
  const call = (rank) => (inside[rank] ? lines[rank][at[rank]] : {});
  const gone = (rank) => call(rank).kind === "return";
  const needs = (rank) => (!inside[rank] || gone(rank) ? [] : RANKS.filter((other) => other !== rank
    && (call(rank).kind === "all_reduce" || call(rank).peer === other) && !matches(call(rank), rank, call(other))));
  steps.forEach((rank) => {
    inside[rank] = true;
    const { kind, peer } = call(rank), all = kind === "all_reduce" ? RANKS : [rank, peer];
    if (kind === "return" || needs(rank).length) return;
    all.forEach((one) => { at[one] += 1; inside[one] = false; });
  });
  const waits = RANKS.flatMap((rank) => needs(rank).map((other) => [rank, other]));
  const points = (a, b) => waits.some(([from, to]) => from === a && to === b);
  const pair = [[0, 1], [1, 2], [2, 0]].find(([a, b]) => points(a, b) && points(b, a));
  const ring = [[0, 1, 2], [0, 2, 1]].find(([a, b, c]) => points(a, b) && points(b, c) && points(c, a));
  const stuck = inside.every(Boolean);
  return { at, inside, waits, stuck, gone: RANKS.filter(gone), circle: (stuck && (pair || ring)) || [] };
}

const ended = (state) => after(state).gone.length === 3 && state.lines.every((lines) => lines[3].kind === "return");
const next = (state) => {
  const { inside } = after(state), last = state.steps.at(-1) ?? 2;
  return [1, 2, 3].map((on) => (last + on) % 3).find((rank) => !inside[rank]);
};
const play = (act, state) => {
  const steps = after(state).stuck ? [] : [...state.steps], begun = steps.length;
  for (let rank = 0; rank !== undefined;) {
    rank = next({ lines: state.lines, steps });
    if (rank !== undefined) steps.push(rank);
  }
  act.move(0.5 * (steps.length - begun), (share) => { state.steps = steps.slice(0, begun + Math.ceil(share * (steps.length - begun))); });
};

export default define({
  title: "Three ranks: who waits for whom?",
  start: () => ({ lines: RANKS.map(sick), steps: [] }),
  goals: [
    { text: "Step the ranks until nobody can move. Then drag one line to another place (or press Tab, then the arrow keys), so that all ranks get through their four lines.",
      met: ended, after: "One rank that does it the other way round is enough." },
    { text: "Make the others wait for a rank that is gone: drag a return.",
      met: (state) => { const { stuck, gone, circle } = after(state); return stuck && gone.length > 0 && gone.length < 3 && !circle.length; },
      after: "No arrow leaves that rank. It left out the call in which the others wait." },
    { text: "Let two ranks wait for each other, in two calls that do not match.",
      met: (state) => after(state).circle.length === 2, after: "They call, but not the same thing at the same time. Follow the arrows: where nobody can move, they run in a ring, between two ranks, or to a rank that is gone." },
  ],
  height: () => MAP + 3 * ROW + 14,

  draw(state, pen, width) {
    const { at, inside, waits, stuck, gone, circle } = after(state), left = 50, box = Math.min(120, (width - left) / 4);
    const out = Math.min(110, width / 2 - 56), spot = [[width / 2, 40], [width / 2 + out, 130], [width / 2 - out, 130]];
    waits.forEach(([from, to]) => {
      const [[a, b], [c, d]] = [spot[from], spot[to]], long = Math.hypot(c - a, d - b), [x, y] = [(c - a) / long, (d - b) / long];
      const red = circle.includes(from) && circle.includes(to), side = 5; // two arrows of a pair lie beside each other
      pen.put(`${from} waits for ${to}`, "path", { d: `M${a + 24 * x - side * y} ${b + 24 * y + side * x}L${c - 24 * x - side * y} ${d - 24 * y + side * x}`, stroke: red ? DEEP : BLUE, "stroke-width": red ? 3.5 : 2, "marker-end": "url(#toy-arrow)" });
    });
    RANKS.forEach((rank) => {
      const [x, y] = spot[rank], ended = gone.includes(rank), line = state.lines[rank][at[rank]];
      pen.put(`node ${rank}`, ended ? "rect" : "circle", ended ? { x: x - 17, y: y - 17, width: 34, height: 34, fill: "#ddd", stroke: SOFT, "stroke-width": 2 }
        : { cx: x, cy: y, r: 18, fill: inside[rank] ? SKY : "#fff", stroke: "#222", "stroke-width": 2 });
      pen.text(`number ${rank}`, x, y + 5, rank, { "text-anchor": "middle", "font-weight": "bold", fill: "#222" });
      const doing = ended ? "has returned" : inside[rank] ? `in ${named(line)}` : `before ${named(line)}`;
      pen.text(`doing ${rank}`, x, rank === 0 ? y - 24 : y + 33, doing, { "text-anchor": "middle", "font-size": 12 });
    });
    const verdict = gone.length === 3 ? "It ends." : stuck ? "Nobody can move." : "";
    pen.text("verdict", width / 2, 110, verdict, { "text-anchor": "middle", "font-weight": "bold", fill: gone.length === 3 ? INK : RED });
    RANKS.forEach((rank) => {
      const y = MAP + ROW * rank;
      pen.text(`rank ${rank}`, 0, y + 20, `rank ${rank}`);
      state.lines[rank].forEach((line, i) => {
        const done = i < at[rank], now = i === at[rank] && inside[rank], color = { recv: SKY, send: ORANGE, all_reduce: GREEN, return: "#ddd" }[line.kind];
        const words = box < 90 && line.peer !== undefined ? named(line).replace(/ (from|to)/, "") : named(line);
        const content = `<rect x="${-box / 2 + 2}" width="${box - 4}" height="${HIGH}" rx="4" fill="${color}" stroke="#222" stroke-width="${now ? 3 : 1}" opacity="${done ? 0.35 : 1}"/><text y="19" text-anchor="middle" font-size="${box < 60 ? 10 : 12}" font-weight="${now ? "bold" : "normal"}" fill="#222">${words}</text>`;
        pen.handle(`line ${rank} ${line.kind}`, { transform: `translate(${left + box * (i + 0.5)} ${y})` }, content, {
          label: `${named(line)}, on rank ${rank}`, words: `line ${i + 1}`, value: i, min: 0, max: 3, page: 1, zero: left + box / 2, scale: box,
          set: (to) => { state.lines[rank].splice(to, 0, ...state.lines[rank].splice(i, 1)); state.steps = []; },
        });
      });
    });
  },

  words(state) {
    const { at, inside, waits, stuck, gone, circle } = after(state);
    const each = RANKS.map((rank) => {
      const whom = waits.filter(([from]) => from === rank).map(([, to]) => `rank ${to}`), line = named(state.lines[rank][at[rank]]);
      return gone.includes(rank) ? `rank ${rank} has returned` : whom.length ? `rank ${rank} waits in ${line} for ${whom.join(" and ")}` : `rank ${rank} stands ${inside[rank] ? "in" : "before"} ${line}`;
    });
    return `${each.join("; ")}. ${gone.length === 3 ? "It ends." : !stuck ? "" : circle.length === 2 ? "Nobody can move: a pair." : circle.length ? "Nobody can move: a ring." : "Nobody can move."}`.trim();
  },
  buttons: (state) => [
    ...RANKS.map((rank) => ({ label: `Step rank ${rank}`, off: after(state).inside[rank], press: (act) => act.change(() => state.steps.push(rank)) })),
    { label: "▶ All, in turn", press: play },
    { label: "↺ As it was", press: (act) => act.change(() => { Object.assign(state, { lines: RANKS.map(sick), steps: [] }); }) },
  ],
});
