"""From jobs to curves: whoever writes answers is asked in every way about every job, and each answer is kept.

    curve = ask(lambda prompt: my_model(prompt), retrieval_job("keys", pairs=20))
    print(*curve.sentences(), sep="\n")

    ways = {"plain": Endpoint(URL, "m"), "brief": Endpoint(URL, "m", system="Answer in one word.")}
    session = Session(tuple(retrieval_job("keys", pairs=pairs) for pairs in (5, 20)))
    curves = session.ask_each(ways, "results/m")     # by model, way and length

Trials are those of `trials`: only the place of the asked fact changes within one. Each is asked at every position
and in three control arms. A prompt is never asked twice.

    scorer = scorer_of(Endpoint("http://localhost:8000/v1", "smollm2", api="completion"))
    session = Session((retrieval_job("keys", pairs=5),), equivalence=None, margins=True)
    (curve,) = session.ask_each({"log-probabilities": scorer}).values()

For margins each trial is asked for the fact and for somebody who does not occur, at every position. A
log-probability that is but an upper bound counts as it is; where the right thing or the best other has one, the
margin is counted as `bounded`.
"""

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.asking.endpoint import Endpoint as Endpoint
from posbias.asking.kept import ANSWERS, AnswerFile, AnswersRead
from posbias.asking.requests import Place, Request, ScoresWritten, cost, id_of, specification_of
from posbias.core import spec
from posbias.core.errors import ModelError, counted, wrong
from posbias.core.files import file_name, write_text
from posbias.core.matching import Rule, words_in
from posbias.core.progress import Event, OnEvent
from posbias.profiles.estimate import Estimate, about
from posbias.profiles.gaps import EQUIVALENCE
from posbias.profiles.place_differences import curve_differences as curve_differences
from posbias.profiles.place_differences import ways_differences as ways_differences
from posbias.profiles.places import ARMS, MOST_CUT_OFF, Key, Places, save_places
from posbias.profiles.places import retrieval_curve as retrieval_curve
from posbias.retrieval.documents import Documents, DocumentSet, doubts_of, places_of
from posbias.retrieval.jobs import RetrievalJob, retrieval_job
from posbias.retrieval.rules import INSTRUCTIONS, Instruction, Rules
from posbias.retrieval.trials import Keys, Needle, Trial, Trials
from posbias.retrieval.wordings import Words

if TYPE_CHECKING:
    from posbias.asking.requests import Generator, RequestCost, Scorer
    from posbias.measurement.texts.corpora import Text

# what is imported as itself: what a session begins and ends with stands at posbias.retrieval too
log = logging.getLogger(__name__)
FIRST_ROUND = 32
"""Trials that are asked before a wanted half-width is looked at."""
SPREAD, AT = 0.57, 0.8
"""Of first - last within trials, the SD where each is right by chance alone, and the accuracy that has it."""
ENDED = {"refused": "refused by the model or a filter", "tool_call": "a tool was called"}
"""What became of answers that are none and were not cut off."""
RESULT = "retrieval.json"
"""What a folder of a way to ask keeps next to its answers (`ANSWERS`): its curves (`save_places`)."""


@dataclass(frozen=True)
class Session:
    """What is asked of whoever it is, how answers are scored, and how sure the curves are to be.

    `jobs`: one for each size; without one, text and documents decide its task, and all documents are asked about.
    `text`: what a needle lies in; `documents`, `instructions`: of the tasks documents and rules (None: ours).
    `rule`: how answers are scored (`core.matching`), by default `contains` for documents and `first` for else;
    rules have checks of their own. `until`: trials are asked until every gap's 95 % interval is at most ± this,
    `job.prompts` of them at most (`Places.reached`). `equivalence`: the difference in accuracy that counts as
    none. `concurrency`: threads that call who is asked. `margins`: whoever is asked scores the candidates of keys
    or needle (`scorer_of`, `LocalModel`), in place of answering: results are those of `scored`, and
    `equivalence` (None: none) is in nats.
    Raises `InvalidValueError` for what cannot be right.
    """

    jobs: tuple[RetrievalJob, ...] = ()
    text: "Text | str | None" = None
    documents: tuple[DocumentSet, ...] | None = None
    rule: Rule | None = None
    until: float | None = None
    equivalence: float | None = EQUIVALENCE
    concurrency: int = 1
    instructions: tuple[Instruction, ...] | None = None
    margins: bool = False

    def __post_init__(self):
        for name, most in (("until", 1.0), ("equivalence", math.inf if self.margins else 1.0)):
            given = getattr(self, name)
            if given is not None and not 0 < given < most:
                raise wrong(name, f"a number above 0 and below {most:g}", given)
        counted("concurrency", self.concurrency)
        if not (isinstance(self.jobs, tuple) and all(isinstance(job, RetrievalJob) for job in self.jobs)):
            raise wrong("jobs", "a tuple of jobs (retrieval_job makes one)", self.jobs)
        if not self.jobs:
            sets = self.documents
            job = retrieval_job("keys" if self.text is None else "needle")
            if sets is not None:
                job = retrieval_job("documents", positions=places_of(sets), prompts=len(sets))
            object.__setattr__(self, "jobs", (job,))
        if unscored := {job.task for job in self.jobs} - {"keys", "needle"} if self.margins else set():
            raise wrong("task", "keys or needle, whose candidates are known", min(unscored))
        if self.rule is not None and any(job.task == "rules" for job in self.jobs):
            raise wrong("rule", "none with the task rules, whose checks decide", self.rule)
        sizes = [(job.pairs or job.length, job.kind) for job in self.jobs]
        if len({*sizes}) < len(sizes):
            raise wrong("jobs", "each size once", [size for size, _ in sizes])

    def announce(self) -> None:
        """Log before anything is asked what of documents makes answers to them doubtful, which of their places are
        asked at, and how narrow intervals can be."""
        job, every = self.jobs[0], len(self.documents or ())
        sets = (self.documents or ())[: job.prompts]
        for doubt in doubts_of(sets) if sets else ():
            log.warning("documents: %s", doubt)
        if job.prompts < every:
            log.info("%d of the %d questions are asked", job.prompts, every)
        if job.positions < (most := max(map(len, sets), default=0)):
            both = f"both ends, the middle from {job.positions - 2} between"
            log.info("positions: %d of up to %d places are asked at: %s", job.positions, most, both)
        if self.until is not None:
            reach = Estimate(0.0, SPREAD / job.prompts**0.5, job.prompts)
            width, needed = min(1.0, reach.half_width), about(reach.draws_for(self.until))
            reached = f"{job.prompts} trials reach about ± {width:.2f} at an accuracy of {AT:g}"
            log.info("until: %s; ± %g takes %s", reached, self.until, needed)

    def trials(self, job: RetrievalJob, tokenizer: Any = None) -> Trials:
        """The trials of a job in the tokens of a model, or without a tokenizer in words (`Words`).

        Raises `InvalidValueError` where text, documents or instructions are missing or not needed, or the job does
        not fit, and as the classes of trials.
        """
        held = {"needle": ("text", self.text), "documents": ("documents", self.documents)}
        for task, (name, given) in (held | {"rules": ("instructions", self.instructions)}).items():
            if given is not None and job.task != task:
                raise wrong(name, f"none with the task {job.task}", got="some")
            if given is None and job.task == task in held:
                raise wrong(name, f"some with the task {task}", got="none")
        words = Words() if tokenizer is None else tokenizer
        if self.documents is not None:
            return Documents(words, job, self.documents)
        if job.task == "rules":
            return Rules(words, job, self.instructions or INSTRUCTIONS)
        if (text := self.text) is None:
            return Keys(words, job)
        return Needle(words, job, *((text, "text") if isinstance(text, str) else (text.content, text.name)))

    def requests(self, *jobs: RetrievalJob) -> list[Request]:
        """Every prompt of some jobs, by default of all."""
        each = ((self.trials(job), range(job.prompts)) for job in jobs or self.jobs)
        made = ((trials.trial(index), index) for trials, indices in each for index in indices)
        return [request for trial, index in made for request in self.requests_of(trial, index)]

    def requests_of(self, trial: Trial, index: int) -> list[Request]:
        """All prompts of a trial: at each position, then in each control arm, or of margins for somebody else."""
        placed = [Request(index, Place("position", k), text) for k, text in enumerate(trial.asked)]
        if self.margins:
            return placed + [Request(index, Place("control", k), one) for k, one in enumerate(trial.control)]
        return placed + [Request(index, Place("arm", arm), text) for arm, text in trial.arms.items()]

    def write_prompts(self, path: str | os.PathLike[str]) -> "RequestCost":
        """Write the prompts for somebody to answer, and return what answering takes. Raises `OutputFileError`."""
        self.announce()
        requests = self.requests()
        total = cost(requests, {})
        write_text(path, "".join(request.line() for request in requests))
        return total

    def ask(
        self, generator: "Generator | Scorer", job: RetrievalJob, file: AnswerFile, on_event: OnEvent
    ) -> Places:
        """Ask about a job what the file has no answer to, and score the answers. Raises as `ask`."""
        trials, made = self.trials(job), list[Trial]()
        count = job.prompts if self.until is None else min(FIRST_ROUND, job.prompts)
        while True:
            made += [trials.trial(index) for index in range(len(made), count)]
            asked = [one for index, trial in enumerate(made) for one in self.requests_of(trial, index)]
            candidates = {one.prompt: made[one.trial].answers for one in asked}
            writer: Any = ScoresWritten(generator, candidates) if self.margins else generator
            file.answer(writer, asked, self.concurrency, on_event)
            sizes = [*map(len, (self.documents or ())[:count])]
            held = {"documents": [min(sizes), max(sizes)]} if sizes else {}
            curve, doubtful = self._curve(made, spec.encode(job) | {"prompts": count} | held, file)
            if self.until is None or count == job.prompts or curve.half_width <= self.until:
                for line in doubtful:
                    log.warning(line)
                return curve
            # what is estimated from few trials is not trusted beyond twice as many
            count = min(job.prompts, 2 * count, max(count + 1, curve.trials_for(self.until)))

    def _curve(
        self, made: Sequence[Trial], job: Mapping[str, Any], file: AnswerFile
    ) -> tuple[Places, list[str]]:
        """The results of trials whose prompts are all answered, and why answers or margins are none."""
        rule: Any = self.rule or {"documents": "contains", "rules": "check"}.get(job["task"], "first")
        if self.margins:
            rule, results, arms = "greedy", scored(made, file.known), dict[str, Any]()
            doubtful = {"margins are bounds, for want of alternatives": results["bounded"] > 0}
        else:
            results, arms, doubtful = answered(made, file.known, rule)
        known = {f"{rows.sum()} of {rows.size} {said}": rows for said, rows in doubtful.items() if rows.any()}
        # what was not answered says nothing of places
        flaws = [said for said, rows in known.items() if rows.mean(axis=0).max() > MOST_CUT_OFF]
        curve = Places(
            results,
            np.mean([trial.depths for trial in made], axis=0),
            {"model": "the generator"} | file.asked_of,
            job,
            arms,
            rule=rule,
            chance=1 / len(made[0].answers) if self.margins or job["task"] == "keys" else 0.0,
            length=float(np.mean([words_in(text) for trial in made for text in trial.asked])),
            unit="words",
            rows="questions" if job["task"] == "documents" else "trials",
            trials=tuple(id_of(trial.asked[0]) for trial in made),
            equivalence=self.equivalence,
            until=self.until,
            flaws=tuple(flaws),
        )
        return curve, [*known]

    def ask_each(
        self,
        ways: "Mapping[str, Generator | Scorer]",
        folder: str | os.PathLike[str] | None = None,
        on_event: OnEvent = lambda event: None,
    ) -> dict[Key, Places]:
        """Ask in each way about each job, and return the curves by model, way and length.

        ways: who answers, by the name of the way.
        folder: where answers and curves are kept (`folder_of`); given again, what is there is not asked again.
        on_event: hears of answered requests, over all ways and jobs.

        Several ways are asked the same trials, so `until` is for one alone. Before the first request of a way,
        what it takes is logged. Raises as `ask`.
        """
        if len(ways) > 1 and self.until is not None:
            raise wrong("until", "none with several ways to ask", self.until)
        self.announce()
        asked, curves, done = {job: self.requests(job) for job in self.jobs}, dict[Key, Places](), 0.0
        every = [request for requests in asked.values() for request in requests]

        def add(event: Event) -> None:
            on_event(Event(done + event.done, len(ways) * len(every), event.unit))

        for name, generator in ways.items():
            place = None if folder is None else folder_of(folder, name, ways)
            of = specification_of(generator) or {"model": name}
            path = None if place is None or isinstance(generator, AnswersRead) else place / ANSWERS
            file = AnswerFile(path, of)
            if path is not None:
                more = ", at most" if self.until is not None else ""
                more = ", each for every candidate" if getattr(generator, "echoes", False) else more
                file.announce(every, generator, None if self.margins else of.get("most_out"), more)
            own = dict[Key, Places]()
            for job in self.jobs:
                try:
                    curve = self.ask(generator, job, file, add)
                except ModelError as error:
                    if file.path is None or not file.path.exists():
                        raise
                    kept = f"answers so far are kept in {file.path}: the same command goes on"
                    raise ModelError(f"{error}; {kept}") from None
                done += len(asked[job])
                curve = replace(curve, asked={**curve.asked, "way": name})
                own[curve.key] = curve
            if place is not None:
                save_places(own.values(), place / RESULT)
            curves |= own
        if folder is not None and len(ways) > 1:
            save_places(curves.values(), Path(folder) / RESULT)
        return curves


def ask(
    generator: "Generator",
    job: RetrievalJob | None = None,
    *,
    text: str | None = None,
    documents: tuple[DocumentSet, ...] | None = None,
    rule: Rule | None = None,
    instructions: tuple[Instruction, ...] | None = None,
    answers: str | os.PathLike[str] | None = None,
    asked_of: Mapping[str, Any] | None = None,
    concurrency: int = 1,
    until: float | None = None,
    equivalence: float = EQUIVALENCE,
    on_event: OnEvent = lambda event: None,
) -> Places:
    """Ask for a fact at every position, in `job.prompts` trials, and score the answers.

    - `generator`: who answers: a function from prompt to text, or what has `write` (`Endpoint`, `LocalModel`); it
      returns a `CutOff` where its tokens ran out.
    - `job`: what is asked (`retrieval_job`).
    - `text`: what a needle lies in; with it, or with documents, the job may be left out.
    - `documents`: one's own (`read_document_sets`).
    - `rule`: how answers are scored: `first` or `contains` (`posbias.core.matching`).
    - `instructions`: rules of one's own (`read_instructions`) for the task rules.
    - `answers`: a file that keeps them and is asked first, whatever the job.
    - `asked_of`: what decides an answer apart from the prompt (a model's name, a system prompt), with which the
      file must agree; by default what the generator says of itself, as `Endpoint` and `LocalModel` do.
    - `concurrency`: threads that call the generator.
    - `until`: the half-width of the gaps' intervals, in accuracy, at which asking stops.
    - `equivalence`: the difference in accuracy that counts as none.
    - `on_event`: hears of answered requests.

    Raises `InvalidValueError` for what cannot be right, `ModelError` where the generator returns no text, what the
    generator raises, and as `AnswerFile`.
    """
    jobs = () if job is None else (job,)
    session = Session(jobs, text, documents, rule, until, equivalence, concurrency, instructions)
    session.announce()
    file = AnswerFile(answers, specification_of(generator) if asked_of is None else asked_of)
    return session.ask(generator, session.jobs[0], file, on_event)


def answered(
    made: Sequence[Trial], known: Mapping[str, str], rule: Rule
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """By trial and position whether answers are right; by trial whether those in control arms are; and by why
    (`ENDED`) which are none."""
    answers = [(trial, [known[id_of(prompt)] for prompt in trial.asked]) for trial in made]
    right = [[trial.right(answer, rule) for answer in row] for trial, row in answers]
    why = np.array([[trial.missing(answer, rule) for answer in row] for trial, row in answers])
    results = {
        "accuracy": np.array([[each[0] for each in row] for row in right]),
        "all_found": np.array([[all(each) for each in row] for row in right]),
        "cut_off": why == "cut_off",
    }
    arms = {
        arm: np.array([trial.right(known[id_of(trial.arms[arm])], rule)[0] for trial in made]) for arm in ARMS
    }
    left = "they count as not found (more tokens do not help)"
    return results, arms, {f"answers: {what}; {left}": why == name for name, what in ENDED.items()}


def margins_of(scores: Float[np.ndarray, "*prompt candidate"]) -> dict[str, Any]:
    """The log-probability of candidate 0 less the best other's, and less the others' mean."""
    right, others = scores[..., 0], scores[..., 1:]
    return {"margin": right - others.max(axis=-1), "margin_mean": right - others.mean(axis=-1)}


def scored(made: Sequence[Trial], known: Mapping[str, str]) -> dict[str, Any]:
    """By trial and position what `Places` has of a model that is opened, and where a margin is a bound.

    `known`: what `ScoresWritten` wrote, by the id of its prompt.
    """
    kept = [[[json.loads(known[id_of(text)]) for text in one] for one in (t.asked, t.control)] for t in made]
    # trial, arm, position, part, candidate
    (scores, control), (greedy, _), (bounds, _) = np.moveaxis(np.array(kept), (3, 1), (0, 1))
    own, other = margins_of(scores), margins_of(control)
    best = scores[..., 1:].argmax(axis=-1, keepdims=True)
    return {
        "accuracy": greedy[..., 0],
        "choice": own["margin"] > 0,
        **own,
        "control_margin": other["margin"],
        "lift": own["margin_mean"] - other["margin_mean"],
        "bounded": np.maximum(bounds[..., 0], np.take_along_axis(bounds[..., 1:], best, axis=-1)[..., 0]),
    }


def folder_of(folder: str | os.PathLike[str], name: str, ways: Mapping[str, Any]) -> Path:
    """Where a way's answers are kept: the folder itself where there is one way, else one of its own in it."""
    return Path(folder, *([getattr(ways[name], "way", file_name(name))] if len(ways) > 1 else []))
