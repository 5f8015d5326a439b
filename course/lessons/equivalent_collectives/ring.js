// A ring of four ranks, each with a tensor of four chunks. In a round every rank sends one chunk to
// the rank at its right, which adds it to its own. The digits in a box name the ranks whose values
// it sums. `model.play` is the same in Python.

const RANKS = [0, 1, 2, 3], HIGH = 30, EVERYTHING = "everything";
const CHOICES = ["chunk r", "chunk r - 1", "chunk r - 2", "chunk r - 3", EVERYTHING];

const start = () => ({ holds: RANKS.map((rank) => RANKS.map(() => RANKS.map((one) => Number(one === rank)))), rounds: [], share: 0 });
const sent = (choice, rank) => RANKS.filter((chunk) => choice === 4 || chunk === (rank - choice + 4) % 4);
const added = ({ holds }, choice) => holds.map((mine, rank) => mine.map((counts, chunk) => {
  const left = (rank + 3) % 4;
  return sent(choice, left).includes(chunk) ? counts.map((count, one) => count + holds[left][chunk][one]) : counts;
}));
const whole = ({ holds }, rank) => holds[rank][rank].every((count) => count === 1);
const twice = ({ holds }) => holds.flat().some((counts) => Math.max(...counts) > 1);
const bytes = ({ rounds }) => rounds.reduce((sum, choice) => sum + (choice === 4 ? 1 : 0.25), 0);
const digits = (counts) => counts.map((count, rank) => String(rank).repeat(Math.min(count, 3))).join("").slice(0, 6);

function round(act, state, choice) {
  if (state.flying !== undefined || state.rounds.length === 3) return;
  state.flying = choice;
  act.move(1.2, (share) => {
    state.share = share;
    if (share < 1 || state.flying === undefined) return;
    Object.assign(state, { holds: added(state, choice), rounds: [...state.rounds, choice], flying: undefined });
  });
}

export default define({
  title: "A ring: what does rank r send in each round?",
  start,
  goals: [
    {
      text: "In three rounds, let rank r hold the whole sum of chunk r: all framed boxes green, with 0123. (For rank 0, chunk r - 1 is chunk 3.)",
      met: (state) => state.rounds.length === 3 && RANKS.every((rank) => whole(state, rank)),
      after: "Three quarters of S sent by each, at the same time: a reduce_scatter.",
    },
    { text: "Start again, and send everything, twice. What goes wrong?", met: (state) => twice(state) && state.rounds.includes(4), after: "Red: a rank is summed twice. And each sent 2 S." },
  ],
  height: () => 214,

  draw(state, pen, width) {
    const wide = Math.min(44, (width - 44) / 8), block = 4 * wide, far = Math.min(width - block - 6, 420);
    const at = (rank, chunk) => [4 + ([1, 2].includes(rank) ? far : 0) + wide * chunk, rank < 2 ? 28 : 142];
    const [x0, x1] = [4 + block, 4 + far], middle = 4 + block / 2;
    [`M${x0 + 4} 43H${x1 - 6}`, `M${middle + far} 66V122`, `M${x1 - 6} 157H${x0 + 4}`, `M${middle} 122V66`].forEach((d, i) =>
      pen.put(`way ${i}`, "path", { d, stroke: SOFT, "stroke-width": 2, "marker-end": "url(#toy-arrow)", fill: "none" }));
    const box = (name, [x, y], counts, own, good) => pen.put(name, "g", { transform: `translate(${x} ${y})` },
      `<rect x="1" width="${wide - 2}" height="${HIGH}" rx="3" fill="${Math.max(...counts) > 1 ? "#f4b8ae" : good ? "#bfe3c6" : "#fff"}" stroke="${own ? "#000" : "#999"}" stroke-width="${own ? 2.6 : 1}"/>`
      + `<text x="${wide / 2}" y="20" text-anchor="middle" font-size="${digits(counts).length > 4 ? 9 : 12}" fill="#222">${digits(counts)}</text>`);
    RANKS.forEach((rank) => {
      const [x, y] = at(rank, 0);
      pen.text(`rank ${rank}`, x + 1, rank < 2 ? y - 10 : y + HIGH + 30, `rank ${rank}${whole(state, rank) ? " ✔" : ""}`, { "font-weight": "bold" });
      RANKS.forEach((chunk) => {
        pen.text(`number ${rank} ${chunk}`, x + wide * (chunk + 0.5), y + HIGH + 13, chunk, { "text-anchor": "middle", "font-size": 10, opacity: 0.7 });
        box(`box ${rank} ${chunk}`, at(rank, chunk), state.holds[rank][chunk], rank === chunk, rank === chunk && whole(state, rank));
      });
    });
    const centre = middle + far / 2, bold = { "text-anchor": "middle", "font-weight": "bold" };
    pen.text("rounds", centre, 90, `${state.rounds.length} of 3 rounds`, bold);
    pen.text("bytes", centre, 110, `${bytes(state)} S sent by each`, { "text-anchor": "middle" });
    if (state.flying === undefined) return;
    RANKS.forEach((rank) => sent(state.flying, rank).forEach((chunk) => {
      const [a, b] = [at(rank, chunk), at((rank + 1) % 4, chunk)], go = (i) => a[i] + state.share * (b[i] - a[i]);
      box(`flies ${rank} ${chunk}`, [go(0), go(1)], state.holds[rank][chunk], false, false);
    }));
  },

  words(state) {
    const each = RANKS.map((rank) => `rank ${rank}: ${state.holds[rank].map((counts) => digits(counts)).join(", ")}`);
    return `After ${state.rounds.length} of 3 rounds each rank has sent ${bytes(state)} S. The chunks hold the values of these ranks: ${each.join("; ")}.`;
  },
  buttons: (state) => [
    ...CHOICES.map((label, choice) => ({ label, off: state.rounds.length === 3, press: (act) => round(act, state, choice) })),
    { label: "↺ Start again", press: (act) => act.change(() => Object.assign(state, start(), { flying: undefined })) },
  ],
});
