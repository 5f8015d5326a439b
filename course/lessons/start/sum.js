// Four ranks with a number each, and an all_reduce: every rank gets all parts, and holds their sum.

const RANKS = [0, 1, 2, 3], MOST = 6, ROW = 42, COLORS = [YELLOW, SKY, ORANGE, PINK];

const sum = (values) => values.reduce((all, value) => all + value, 0);

function reduce(act, state) {
  if (state.share < 1) return;
  const brought = state.held.map(sum);
  act.move(1.8, (share) => {
    Object.assign(state, { brought, share });
    if (share === 1) Object.assign(state, { held: RANKS.map(() => brought), calls: state.calls + 1 });
  });
}

export default define({
  title: "Four ranks, one all_reduce",
  start: () => ({ own: [1, 2, 3, 4], held: [[1], [2], [3], [4]], brought: [1, 2, 3, 4], calls: 0, share: 1 }),
  goals: [
    {
      text: "Let every rank end with 12: drag the bars (or Tab, then the arrow keys), then call all_reduce.",
      met: ({ calls, held }) => calls === 1 && held.every((parts) => sum(parts) === 12),
      after: "Everybody brought a number, and everybody holds the sum.",
    },
    { text: "Call it once more, with what they hold now. What do they hold then?", met: ({ calls }) => calls >= 2, after: "Four times as much: an all_reduce changes the tensor in place." },
  ],
  height: () => ROW * RANKS.length + 6,

  draw(state, pen, width) {
    const { held, brought, share } = state, left = 58, moving = share < 1;
    const shown = moving ? brought : held.map(sum), most = Math.max(4 * MOST, sum(brought) * (moving ? 1 : 0), ...held.map(sum));
    const scale = (width - left - 44) / most, x = (value) => left + scale * value, y = (rank) => 8 + ROW * rank;
    RANKS.forEach((rank) => {
      pen.text(`name ${rank}`, 2, y(rank) + 19, `rank ${rank}`);
      pen.put(`base ${rank}`, "path", { d: `M${left} ${y(rank) + 29}H${width - 40}`, stroke: SOFT, "stroke-width": 0.5 });
    });
    const part = (name, from, value, rank, owner) => value && pen.put(name, "g", { transform: `translate(${x(from)} ${y(rank)})` },
      `<rect width="${scale * value}" height="28" fill="${COLORS[owner]}" stroke="#222"/>` + (scale * value > 14 ? `<text x="${(scale * value) / 2}" y="19" text-anchor="middle" font-size="12" fill="#222">${value}</text>` : ""));
    RANKS.forEach((rank) => {
      if (!moving) {
        let from = 0;
        held[rank].forEach((value, i) => { part(`part ${rank} ${i}`, from, value, rank, held[rank].length > 1 ? i : rank); from += value; });
        pen.text(`sum ${rank}`, x(sum(held[rank])) + 12, y(rank) + 20, held[rank].length > 1 ? `= ${sum(held[rank])}` : "", { "font-weight": "bold" });
        return;
      }
      RANKS.forEach((to) => { // a copy of each part travels to every rank, and takes its place in the sum
        const place = sum(brought.slice(0, rank));
        part(`part ${to} ${rank}`, share * place, brought[rank], rank + share * (to - rank), rank);
      });
    });
    if (state.calls || moving) return;
    RANKS.forEach((rank) => pen.handle(`end ${rank}`, { transform: `translate(${x(state.own[rank])} ${y(rank) + 14})` },
      `<rect x="-14" y="-18" width="28" height="36" fill="transparent"/><rect x="-4" y="-17" width="8" height="34" rx="4" fill="#fff" stroke="#222" stroke-width="1.5"/>`, {
        label: `number of rank ${rank}`, words: String(state.own[rank]), value: state.own[rank], min: 0, max: MOST, page: 2, zero: left, scale,
        set(value) { state.own[rank] = value; state.held[rank] = [value]; },
      }));
  },

  words: ({ held }) => `${held.map((parts, rank) => `rank ${rank} holds ${parts.length > 1 ? `${parts.join(" + ")} = ` : ""}${sum(parts)}`).join("; ")}.`,
  buttons: (state) => [
    { label: "▶ all_reduce", off: state.calls >= 2, press: reduce },
    { label: "↺ Start again", press: (act) => act.change(() => Object.assign(state, { held: state.own.map((value) => [value]), calls: 0, share: 1 })) },
  ],
});
