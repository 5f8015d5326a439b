"""The game of lesson 00: wrong stopwatches. Say what is wrong with each; then see."""

from course import ledger

FAULTS = {
    "A": "it waits for a rank that comes late",
    "B": "bandwidths are averaged, where times should be",
    "C": "the start of the job is inside the clock",
    "D": "a mean, and a few calls decide it",
    "E": "S is the bytes of one rank here and of all ranks there",
    "F": "a group is made inside the clock",
    "G": "the data cannot show that the result is wrong",
    "H": "nothing was warmed up: the first call is counted",
    "I": "GiB are called GB",
    "J": "the clock stops before the work is done",
    "K": "one rank's time is taken, and another rank is still at work",
}
ANSWERS = {
    "Ada": "H", "Ben": "J", "Cleo": "A", "Dan": "C",
    "Fay": "F", "Gus": "K", "Hal": "D", "Ida": "B", "Jo": "G", "Kim": "E", "Lee": "I",
}  # fmt: skip
IF_IT_WERE = {
    "A": "one rank would have to be busy elsewhere when the clock starts. Is there a barrier?",
    "B": "bytes over time would have to be taken for each call. Where is the division?",
    "C": "the clock would have to start before the ranks do. Where does it start?",
    "D": "the samples would have to be very uneven. Look at all of them",
    "E": "the same run would give two bandwidths. Which bytes are counted?",
    "F": "`new_group` would have to stand between start and stop. Does it?",
    "G": "a wrong sum would have to look right. Which numbers go in?",
    "H": "a second run of the same call in the same job would be much faster. Is it made twice?",
    "I": "the figure would be off by 7 %. By how much is it off?",
    "J": "the call would have to return before it is done. Does it, and who waits?",
    "K": "the ranks' times would have to differ. Whose is it?",
}


def wrong_with(colleague: str, fault: str) -> None:
    """Judge the learner's verdict on a colleague's stopwatch, and keep the first one.

    Args:
        colleague: Whose stopwatch: a key of `ANSWERS`.
        fault: A letter of `FAULTS`.
    """
    letter = fault.strip().upper()
    if letter not in FAULTS:
        print(f"What is wrong with {colleague}'s measurement? Put in a letter, A to {max(FAULTS)}.")
        return
    first = {key: said for key, said in (ledger.recall("00.game") or {}).items() if key in ANSWERS}
    first.setdefault(colleague, letter)
    ledger.keep("00.game", first)
    if letter != ANSWERS[colleague]:
        print(f"Not {letter}: then {IF_IT_WERE[letter]}")
        return
    right = sum(ANSWERS[name] == said for name, said in first.items())
    print(f"Yes: {FAULTS[letter]}. At the first try you named {right} of {len(first)} so far.")
