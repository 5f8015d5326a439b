// Customers who share one counter: work there, time elsewhere, and back. Times are in ms.
// Who finds the counter taken waits; first come, first served. A lap is one turn of all this.

const MOST = 8, SPAN = 480, ROW = 24, TOP = 30, LEFT = 30;

/** Play the queue out: every turn of every customer, and the lap when all is settled. */
const turns = ({ customers, work, elsewhere }) => {
  const ready = Array(customers).fill(0), made = [];
  for (let free = 0, i = 0; i < customers * 40 && free < 3 * SPAN; i++) {
    const who = ready.indexOf(Math.min(...ready)), begin = Math.max(free, ready[who]);
    free = begin + work;
    made.push({ who, ready: ready[who], begin, end: free });
    ready[who] = free + elsewhere;
  }
  return made;
};
const lap = ({ customers, work, elsewhere }) => Math.max(work + elsewhere, customers * work);
const idle = (state) => lap(state) - state.customers * state.work;
const queues = ({ customers, work, elsewhere }) => customers * work > work + elsewhere;
const play = (act, state) => act.move(5, (share) => { state.now = share < 1 ? share * SPAN : Infinity; });

export default define({
  title: "Customers of one counter",
  start: () => ({ customers: 2, work: 20, elsewhere: 40, now: Infinity }),
  goals: [
    {
      text: "Six customers; in the end nobody waits, and yet the counter is never idle. (Drag the yellow dots, or press Tab and the arrow keys.)",
      met: (state) => state.customers === 6 && !queues(state) && idle(state) === 0,
      after: "Six times the work just fills a lap. That number is the knee: a seventh would have to wait.",
    },
    {
      text: "Eight customers with 20 ms of work: a lap takes 160 ms. Give each 120 ms elsewhere, and the lap has to stay 160.",
      met: (state) => state.customers === 8 && state.work === 20 && state.elsewhere === 120 && lap(state) === 160,
      after: "Where a queue is, time elsewhere costs nothing: it only shortens the wait.",
    },
    {
      text: "Halve that lap: eight customers, 120 ms elsewhere or less, a lap of 80 ms. There is no second counter.",
      met: (state) => state.customers === 8 && lap(state) <= 80,
      after: "You have found the rule. As long as the counter is idle for at least one customer's work in each lap, a further customer costs nobody anything. Once it is never idle, a lap takes customers × work.",
    },
  ],
  height: () => TOP + ROW * MOST + 128,

  draw(state, pen, width) {
    const { customers, now } = state, scale = (width - LEFT - 12) / SPAN, x = (ms) => LEFT + scale * Math.min(ms, SPAN);
    const bottom = TOP + ROW * MOST;
    const free = idle(state), narrow = width < 400, told = narrow ? "" : "the counter: ";
    const name = queues(state) ? "a queue" : free ? `idle for ${free} ms${narrow ? "" : " of each lap"}` : "never idle, and no queue";
    pen.text("lap", LEFT, 16, `a lap: ${lap(state)} ms; ${told}${name}`, { "font-weight": "bold", "font-size": narrow ? 12 : 13, fill: queues(state) ? RED : INK });
    for (let ms = 0; ms <= SPAN; ms += 160) pen.text(`ms ${ms}`, x(ms), bottom + 15, ms === SPAN ? `${ms} ms` : ms, { "text-anchor": ms === SPAN ? "end" : "middle", "font-size": 11 });
    pen.put("axis", "path", { d: `M${x(0)} ${bottom}H${x(SPAN)}`, stroke: SOFT });
    for (let who = 0; who < customers; who++) {
      const y = TOP + ROW * who + ROW / 2;
      pen.text(`name ${who}`, 8, y + 4, who + 1, { "font-size": 12 });
      pen.put(`way ${who}`, "path", { d: `M${x(0)} ${y}H${x(Math.min(now, SPAN))}`, stroke: SOFT, "stroke-width": 1.5, "stroke-dasharray": "2 4" });
    }
    turns(state).forEach(({ who, ready, begin, end }, i) => {
      const y = TOP + ROW * who + 4, until = (ms) => Math.min(ms, now, SPAN);
      if (until(begin) > ready) pen.put(`wait ${i}`, "rect", { x: x(ready), y, height: 16, width: scale * (until(begin) - ready), fill: "url(#toy-hatch)", stroke: RED });
      if (until(end) > begin) pen.put(`work ${i}`, "rect", { x: x(begin), y, height: 16, width: scale * (until(end) - begin), fill: BLUE, stroke: "#fff", "stroke-width": 0.5 });
    });
    if (now < SPAN) pen.put("now", "path", { d: `M${x(now)} ${TOP - 4}V${bottom}`, stroke: INK });
    [["customers", 1, MOST, 1, ""], ["work", 5, 40, 5, " ms"], ["elsewhere", 0, 200, 10, " ms"]].forEach(([what, min, max, step, unit], i) => {
      const y = bottom + 42 + 26 * i, from = 112, span = (width - from - 84) / (max - min), value = state[what];
      pen.text(`${what}'s name`, 8, y + 4, what);
      pen.put(`${what}'s track`, "path", { d: `M${from} ${y}H${from + span * (max - min)}`, stroke: SOFT, "stroke-width": 3 });
      pen.text(`${what} is`, width - 66, y + 4, value + unit, { "font-weight": "bold" });
      pen.handle(what, { transform: `translate(${from + span * (value - min)} ${y})` }, `<circle r="13" fill="transparent"/><circle r="9" fill="${YELLOW}" stroke="#222" stroke-width="1.5"/>`, {
        label: what, words: value + unit, value, min, max, step, zero: from - span * min, scale: span,
        set(to) { state[what] = to; state.now = Infinity; },
      });
    });
    const y = bottom + 112, [waits, away] = narrow ? [129, 186] : [140, 220];
    pen.put("key work", "rect", { x: 8, y, width: 18, height: 12, fill: BLUE });
    pen.text("key work's name", 32, y + 10, "at the counter");
    pen.put("key wait", "rect", { x: waits, y, width: 18, height: 12, fill: "url(#toy-hatch)", stroke: RED });
    pen.text("key wait's name", waits + 22, y + 10, "waits");
    pen.put("key away", "path", { d: `M${away} ${y + 6}h16`, stroke: SOFT, "stroke-width": 1.5, "stroke-dasharray": "2 4" });
    pen.text("key away's name", away + 20, y + 10, "elsewhere");
  },

  words(state) {
    const waits = queues(state) ? `each waits ${lap(state) - state.work - state.elsewhere} ms` : `the counter is idle for ${idle(state)} ms of each lap`;
    const customers = state.customers === 1 ? "1 customer" : `${state.customers} customers`;
    return `${customers}, ${state.work} ms of work, ${state.elsewhere} ms elsewhere: a lap takes ${lap(state)} ms, and ${waits}.`;
  },
  opening: play,
  buttons: () => [{ label: "▶ Play it", press: play }],
});
