"""The game of lesson 00: wrong stopwatches. Say what is wrong with each; then see."""

from __future__ import annotations

from labkit.course import ledger

FAULTS = {
    "A": "nothing was warmed up: the first call is counted",
    "B": "the start of the job is inside the clock",
    "C": "a group is made inside the clock",
    "D": "it waits for a rank that comes late",
    "E": "the clock stops before the work is done",
    "F": "one rank's time is taken, and another rank is still at work",
    "G": "a mean, and a few calls decide it",
    "H": "bandwidths are averaged, where times should be",
    "I": "the data cannot show that the result is wrong",
    "J": "S is the bytes of one rank here and of all ranks there",
    "K": "GB are taken for GiB",
}
ANSWERS = {
    "Ada": "A", "Ben": "E", "Cleo": "D", "Dan": "B",
    "Fay": "C", "Gus": "F", "Hal": "G", "Ida": "H", "Jo": "I", "Kim": "J", "Lee": "K",
}  # fmt: skip
IF_IT_WERE = {
    "A": "a second run of the same call in the same job would be much faster. Is it made twice?",
    "B": "the clock would have to start before the ranks do. Where does it start?",
    "C": "`new_group` would have to stand between start and stop. Does it?",
    "D": "one rank would have to be busy elsewhere when the clock starts. Is there a barrier?",
    "E": "the call would have to return before it is done. Does it, and who waits?",
    "F": "the ranks' times would have to differ. Whose is it?",
    "G": "the samples would have to be very uneven. Look at all of them",
    "H": "bytes over time would have to be taken for each call. Where is the division?",
    "I": "a wrong sum would have to look right. Which numbers go in?",
    "J": "the same run would give two bandwidths. Which bytes are counted?",
    "K": "the figure would be off by 7 %. By how much is it off?",
}


def wrong_with(colleague: str, fault: str) -> None:
    """Judge the learner's verdict on a colleague's stopwatch, and keep the first one.

    Args:
        colleague: Whose stopwatch: a key of `ANSWERS`.
        fault: A letter of `FAULTS`; anything else prints the list.
    """
    letter = fault.strip().upper()
    if letter not in FAULTS:
        print(f"What is wrong with {colleague}'s stopwatch? Put in a letter:")
        print(*(f"  {letter}  {text}" for letter, text in FAULTS.items()), sep="\n")
        return
    first = {key: said for key, said in (ledger.recall("00.game") or {}).items() if key in ANSWERS}
    first.setdefault(colleague, letter)
    ledger.keep("00.game", first)
    if letter != ANSWERS[colleague]:
        print(f"Not {letter}: then {IF_IT_WERE[letter]}")
        return
    right = sum(ANSWERS[name] == said for name, said in first.items())
    print(f"Yes: {FAULTS[letter]}. At the first try you named {right} of {len(first)} so far.")
