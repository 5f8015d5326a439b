// One step of GPipe, three ranks, three micro-batches. A message moves when it is first in both of
// its queues and what it sends is computed: each rank moves one at a time, and nobody shares a link.
// A test holds the times of `run`, in ms, against those of `simulator.simulate`.

const TAKES = { F: 12.5, B: 25 }, LEG = 8.2, RANKS = [0, 1, 2], NUMBERS = [0, 1, 2], SHORTEST = 224.3, HIGH = 34, GAP = 30, LANE = 58;

const message = (kind, number, src) => {
  const dst = kind === "F" ? src + 1 : src - 1;
  return { kind, number, src, dst, label: kind + number, name: `${kind}${number} ${src}→${dst}` };
};
const tasks = ["F", "B"].flatMap((kind) => NUMBERS.map((number) => ({ kind, number, label: kind + number })));
const usual = (rank) => tasks.flatMap(({ kind, number }) => [message(kind, number, kind === "F" ? rank - 1 : rank + 1), message(kind, number, rank)])
  .filter(({ src, dst }) => RANKS.includes(src) && RANKS.includes(dst));

/** When each task and each message begins and ends; and who waits for whom in a circle, if any. */
function run(queues) {
  const after = new Map(), takes = new Map(), ends = new Map(), begins = new Map();
  const wait = (later, ...earlier) => after.set(later, [...(after.get(later) || []), ...earlier.filter(Boolean)]);
  RANKS.forEach((rank) => {
    tasks.forEach(({ kind, label }, i) => {
      wait(`${label} on rank ${rank}`, i && `${tasks[i - 1].label} on rank ${rank}`);
      takes.set(`${label} on rank ${rank}`, TAKES[kind]);
    });
    queues[rank].forEach(({ label, src, name }, i) => {
      wait(name, i && queues[rank][i - 1].name, src === rank && `${label} on rank ${rank}`);
      if (src !== rank) wait(`${label} on rank ${rank}`, name);
      takes.set(name, LEG);
    });
  });
  for (let before = -1; before < ends.size;) {
    before = ends.size;
    after.forEach((earlier, name) => {
      if (ends.has(name) || !earlier.every((one) => ends.has(one))) return;
      begins.set(name, Math.max(0, ...earlier.map((one) => ends.get(one))));
      ends.set(name, begins.get(name) + takes.get(name));
    });
  }
  const stuck = [...after.keys()].filter((name) => !ends.has(name));
  const back = (from) => { // the shortest way from one that waits to itself
    const ways = [[from]];
    for (const way of ways) for (const next of after.get(way.at(-1)).filter((one) => stuck.includes(one))) {
      if (next === from) return way;
      if (!ways.some((other) => other.includes(next))) ways.push([...way, next]);
    }
    return [];
  };
  const circle = stuck.map(back).filter((way) => way.length).sort((a, b) => a.length - b.length)[0] || [];
  return { begins, ends, circle, total: stuck.length ? Infinity : Math.max(...ends.values()) };
}

const play = (act, state) => act.move(5, (share) => {
  state.now = share < 1 ? share * Math.max(...run(state.queues).ends.values()) : Infinity;
});

export default define({
  title: "Three ranks, three queues: which message goes first?",
  start: () => ({ queues: RANKS.map(usual), now: Infinity }),
  goals: [
    { text: "Bring the step from 286 ms to 224: drag messages in rank 1's queue (or Tab, then the arrow keys).",
      met: ({ queues }) => run(queues).total < SHORTEST, after: "The tasks, the messages and the links are the same. Only their order is another." },
    { text: "Now make a circle: an order in which messages wait for each other, and none can go first.",
      met: ({ queues }) => run(queues).circle.length > 0, after: "A message that cannot move holds up all behind it. In a circle none can move, and no waiting ends that: a deadlock." },
  ],
  height: () => 3 * (HIGH + GAP) + 3 * LANE + 44,

  draw({ queues, now }, pen, width) {
    const { begins, ends, circle, total } = run(queues), left = 48, box = Math.min(52, (width - left) / 12);
    const place = (rank, name) => left + box * (queues[rank].findIndex((one) => one.name === name) + 0.5);
    const row = (rank) => 22 + rank * (HIGH + GAP), stops = Math.max(...ends.values());
    pen.text("heads", 0, 11, "In line, the first at the left:", { "font-weight": "bold" });
    RANKS.forEach((rank) => {
      pen.text(`queue ${rank}`, 0, row(rank) + 21, `rank ${rank}`);
      queues[rank].forEach(({ label, name, src, dst }, i) => {
        const sends = src === rank, ended = ends.get(name) <= now && now < Infinity, moves = begins.get(name) <= now && !ended && now < Infinity;
        const words = `<rect x="${-box / 2 + 1}" width="${box - 2}" height="${HIGH}" rx="4" fill="${sends ? ORANGE : SKY}" stroke="${circle.includes(name) ? "#c00000" : "#222"}" stroke-width="${circle.includes(name) || moves ? 3 : 1}" opacity="${ended ? 0.25 : 1}"/>`
          + `<text y="15" text-anchor="middle" font-size="12" font-weight="bold" fill="#222">${label}</text><text y="28" text-anchor="middle" font-size="10" fill="#222">${box < 40 ? (sends ? `→${dst}` : `${src}→`) : sends ? `to ${dst}` : `from ${src}`}</text>`;
        pen.handle(`box ${rank} ${name}`, { transform: `translate(${left + box * (i + 0.5)} ${row(rank)})` }, words, {
          label: `${label}, which rank ${rank} ${sends ? `sends to rank ${dst}` : `receives from rank ${src}`}`, words: `${i + 1} in line`,
          value: i, min: 0, max: queues[rank].length - 1, page: 1, zero: left + box / 2, scale: box,
          set: (to) => { queues[rank].splice(to, 0, ...queues[rank].splice(i, 1)); },
        });
      });
    });
    const links = circle.filter((name) => name.includes("→")), ranksOf = (name) => name.slice(-3).split("→").map(Number);
    links.forEach((name, i) => { // in the queue of a rank that both are on
      const next = links[(i + 1) % links.length], [a, b] = ranksOf(name).sort(), both = [a, b].filter((rank) => ranksOf(next).includes(rank));
      const rank = both.find((one) => place(one, next) < place(one, name)) ?? both[0];
      const [from, to] = [place(rank, name), place(rank, next)], top = row(rank) - 2;
      pen.put(`waits ${i}`, "path", { d: `M${from} ${top}Q${(from + to) / 2} ${top - 22} ${to} ${top}`, fill: "none", stroke: "#c00000", "stroke-width": 2.5, "marker-end": "url(#toy-arrow)" });
      pen.put(`same ${i}`, "path", { d: `M${place(a, name)} ${row(a) + HIGH}L${place(b, name)} ${row(b)}`, stroke: "#c00000", "stroke-width": 1.5, "stroke-dasharray": "3 3" });
    });
    const top = 3 * (HIGH + GAP) + 40, scale = (width - left - 8) / 300, x = (ms) => left + scale * ms, lane = (rank) => top + LANE * rank;
    pen.text("result", 0, top - 14, total < Infinity ? `The step takes ${total.toFixed(0)} ms.` : `After ${stops.toFixed(0)} ms nothing moves any more.`, { "font-weight": "bold", fill: total < Infinity ? INK : RED });
    RANKS.forEach((rank) => {
      pen.text(`lane ${rank}`, 0, lane(rank) + 16, `rank ${rank}`);
      pen.put(`base ${rank}`, "path", { d: `M${left} ${lane(rank) + 24}H${width}`, stroke: SOFT, "stroke-width": 0.5 });
      tasks.forEach(({ kind, label }) => {
        const name = `${label} on rank ${rank}`, [begin, end] = [begins.get(name), Math.min(ends.get(name), now)];
        if (!(begin < end)) return;
        pen.put(name, "rect", { x: x(begin), y: lane(rank), width: scale * (end - begin), height: 24, fill: kind === "F" ? BLUE : GREEN, stroke: "#fff", "stroke-width": 0.6 });
        if (scale * (end - begin) > 17) pen.text(`${name}'s name`, x((begin + end) / 2), lane(rank) + 16, label, { "text-anchor": "middle", "font-size": 11, fill: "#fff" });
      });
    });
    [...queues[0], ...queues[2]].forEach(({ name, kind, src, dst }) => {
      const [begin, end] = [begins.get(name), Math.min(ends.get(name), now)];
      if (!(begin < end)) return;
      const from = lane(src) + (dst > src ? 24 : 0), to = from + ((end - begin) / LEG) * (dst > src ? LANE - 24 : 24 - LANE);
      pen.put(`${name} moves`, "path", { d: `M${x(begin)} ${from}L${x(end)} ${to}`, stroke: kind === "F" ? BLUE : GREEN, "stroke-width": 1.6, "marker-end": "url(#toy-arrow)" });
    });
  },

  words({ queues }) {
    const { circle, total } = run(queues), order = queues[1].map(({ name }) => name).join(", ");
    const result = total < Infinity ? `The step takes ${total.toFixed(1)} ms.` : `The step never ends: ${[...circle, circle[0]].join(", which waits for ")}.`;
    return `${result} Rank 1's queue: ${order}.`;
  },
  opening: play,
  buttons: () => [{ label: "▶ Play it", press: play },
    { label: "↺ As it was", press: (act, state) => act.change(() => { state.queues = RANKS.map(usual); }) }],
});
