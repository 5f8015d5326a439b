// The door of an all_reduce: it opens for the last rank, and then the bytes move.
// Times are in ms. A stopwatch runs from a rank's arrival until the sum is there.

const RANKS = [0, 1, 2, 3], LATEST = 50, LONGEST = 25, ROW = 38, TOP = 26;

const shown = ({ at, moving }) => at.map((arrival) => Math.max(...at) - arrival + moving);
const only = (values, place, best) => values.every((value, other) => other === place || best(values[place], value));
const narrow = (width) => width < 440;
const near = (values, wanted) => values.every((value, i) => Math.abs(value - wanted[i]) <= 1);

const play = (act, state) => act.move(3, (share) => {
  state.now = share < 1 ? share * (Math.max(...state.at) + state.moving) : Infinity;
});

export default define({
  title: "The door: when does each rank arrive?",
  start: () => ({ at: [0, 10, 30, 20], moving: 20, now: Infinity }),
  goals: [
    {
      text: "Make rank 3's stopwatch larger than every other, while everybody waits for rank 1. (Drag the yellow dots, or press Tab and the arrow keys.)",
      met: (state) => only(state.at, 1, (a, b) => a > b) && only(shown(state), 3, (a, b) => a > b),
      after: "So the largest stopwatch is a victim's: it waited longest.",
    },
    {
      text: "Your monitoring shows 40, 41, 2 and 39 ms. Rebuild it, within 1 ms. (The light blue edge sets how long the bytes move.)",
      met: (state) => near(shown(state), [40, 41, 2, 39]),
      after: "Rank 2 came last and waited for nobody: its 2 ms are the moving alone. You have found the rule. A stopwatch shows the waiting for the last rank, and then the moving of the bytes. So the smallest one shows the moving, and the largest belongs to a victim.",
    },
  ],
  height: (state, width) => TOP + ROW * RANKS.length + (narrow(width) ? 64 : 44),

  draw(state, pen, width) {
    const { at, moving, now } = state, last = Math.max(...at), end = last + moving;
    const left = 62, scale = (width - left - 84) / (LATEST + LONGEST), x = (ms) => left + scale * ms;
    const bottom = TOP + ROW * RANKS.length, open = now >= last, largest = Math.max(...shown(state));
    for (let ms = 0; ms <= LATEST + LONGEST; ms += 10) {
      pen.put(`tick ${ms}`, "path", { d: `M${x(ms)} ${bottom}v5`, stroke: SOFT });
      if (ms % 20 === 0) pen.text(`ms ${ms}`, x(ms), bottom + 18, ms, { "text-anchor": "middle", "font-size": 11 });
    }
    pen.put("axis", "path", { d: `M${x(0)} ${bottom}H${x(LATEST + LONGEST)}`, stroke: SOFT });
    pen.text("unit", x(LATEST + LONGEST) + 8, bottom + 18, "ms", { "font-size": 11 });
    RANKS.forEach((rank) => {
      const y = TOP + ROW * rank + ROW / 2, until = (ms) => Math.max(Math.min(ms, now), at[rank]);
      pen.text(`name ${rank}`, 2, y + 4, `rank ${rank}`);
      pen.put(`way ${rank}`, "path", { d: `M${x(0)} ${y}H${x(at[rank])}`, stroke: SOFT, "stroke-width": 1.5, "stroke-dasharray": "2 4" });
      pen.put(`wait ${rank}`, "rect", { x: x(at[rank]), y: y - 11, height: 22, width: scale * (until(last) - at[rank]), fill: "url(#toy-hatch)", stroke: RED });
      pen.put(`move ${rank}`, "rect", { x: x(last), y: y - 11, height: 22, width: scale * Math.max(0, until(end) - last), fill: BLUE });
    });
    pen.put("door", "path", { d: `M${x(last)} ${TOP - 4}V${bottom}`, stroke: INK, "stroke-width": open ? 2 : 5, "stroke-dasharray": open ? "5 4" : "none" });
    pen.text("door's name", x(last), TOP - 11, open ? "the door opens" : "the door is shut", { "text-anchor": last > 44 ? "end" : last < 10 ? "start" : "middle", "font-weight": "bold" });
    pen.handle("moving", { transform: `translate(${x(end)} ${TOP})` }, `<rect x="-11" width="22" height="${bottom - TOP}" fill="transparent"/><rect x="-3" y="2" width="6" height="${bottom - TOP - 4}" rx="3" fill="${SKY}" stroke="#222"/>`, {
      label: "how long the bytes move", words: `${moving} ms`, value: moving, min: 1, max: LONGEST, zero: x(last), scale,
      set(value) { state.moving = value; state.now = Infinity; },
    });
    RANKS.forEach((rank) => {
      const y = TOP + ROW * rank + ROW / 2, ms = Math.round(clamp(Math.min(now, end) - at[rank], 0, end)), big = ms === largest && now >= end;
      pen.put(`watch ${rank}`, "g", { transform: `translate(${width - 70} ${y + 1})` }, stopwatch(ms, big ? RED : INK));
      pen.text(`shows ${rank}`, width - 54, y + 5, `${ms} ms`, { "font-weight": "bold", fill: big ? RED : INK });
      pen.handle(`dot ${rank}`, { transform: `translate(${x(Math.min(at[rank], now))} ${y})` }, `<circle r="17" fill="transparent"/><circle r="10" fill="${YELLOW}" stroke="#222" stroke-width="1.5"/><text y="4" text-anchor="middle" font-size="11" font-weight="bold" fill="#222">${rank}</text>`, {
        label: `arrival of rank ${rank}`, words: `${at[rank]} ms`, value: at[rank], min: 0, max: LATEST, zero: left, scale,
        set(value) { at[rank] = value; state.now = Infinity; },
      });
    });
    pen.put("key wait", "rect", { x: 2, y: bottom + 27, width: 18, height: 12, fill: "url(#toy-hatch)", stroke: RED });
    pen.text("key wait's name", 26, bottom + 37, "waits for the last");
    pen.put("key move", "rect", { x: 152, y: bottom + 27, width: 18, height: 12, fill: BLUE });
    pen.text("key move's name", 176, bottom + 37, "the bytes move");
    const keyEnd = narrow(width) ? [8, bottom + 45] : [312, bottom + 26];
    pen.put("key end", "rect", { x: keyEnd[0], y: keyEnd[1], width: 6, height: 14, rx: 3, fill: SKY, stroke: "#222" });
    pen.text("key end's name", keyEnd[0] + (narrow(width) ? 18 : 14), keyEnd[1] + 11, "the moving ends");
  },

  words(state) {
    const each = shown(state).map((ms, rank) => `rank ${rank} arrives at ${state.at[rank]} ms and shows ${ms}`);
    return `${each.join("; ")}. The bytes move for ${state.moving} ms.`;
  },
  opening: play,
  buttons: () => [{ label: "▶ Play it", press: play }],
});
