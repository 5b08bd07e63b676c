"""What an answer says: marks of thought as models' own templates write them, and words of many scripts."""

import json
import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

import posbias
from posbias.asking.replies import answer_of, text_of
from posbias.core.matching import (
    CutOff,
    Refused,
    ToolCall,
    final_answer,
    is_right,
    missing,
    normalised,
    place_in,
    word_places,
)

# by family, how it opens and closes its thoughts
MARKS = {
    "qwen, deepseek, glm": ("<think>\n", "\n</think>\n\n"),
    "a template that opens them": ("", "</think>"),
    "claude": ("<thinking>", "</thinking>"),
    "exaone, marco": ("<Thought>", "</Thought>"),
    "prompted": ("<reasoning>\n", "\n</reasoning>\n"),
    "seed": ("<seed:think>", "</seed:think>"),
    "longcat": ("<longcat_think>", "</longcat_think>"),
    "magistral": ("[THINK]", "[/THINK]"),
    "kimi": ("◁think▷", "◁/think▷"),
    "sky-t1": ("<|begin_of_thought|>\n", "<|end_of_thought|>\n\n<|begin_of_solution|>\n"),
    "command": ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    "apertus": ("<|inner_prefix|>", "<|inner_suffix|>"),
    "gemma 4": ("<|channel>thought\n", "<channel|>"),
    "solar": ("<|think|>", "<|end|><|begin|>assistant<|content|>"),
    "gpt-oss": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    "gpt-oss, bare": ("analysis", "assistantfinal"),
    "granite": ("Here is my thought process: ", "Here is my response: "),
    "apriel": ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]\n"),
    "ollama run": ("Thinking...\n", "...done thinking.\n\n"),
}


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
def test_what_is_thought_is_no_answer_and_thoughts_alone_are_cut_off(marks):
    opening, closing = marks
    thought = "User asks. It could be a chair"
    for said in ("lamp", "The lamp, surely."):
        assert final_answer(f"{opening}{thought}{closing}{said}") == said
        assert is_right(f"{opening}{thought}{closing}{said}", [["lamp"]], ["chair"], "first") == (True,)
    assert is_right(f"{opening}It is the lamp{closing}chair", [["lamp"]]) == (False,)
    if opening:
        alone = opening + thought
        assert (final_answer(alone), type(answer_of(alone))) == ("", CutOff)
        assert missing(alone, [["lamp"]], ["chair"], "first") == "cut_off"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<think>a</think> chair <think>b</think> lamp", "lamp"),
        ("lamp <think>or the chair?", "lamp"),
        ("<think>a <think> b</think> c</think> lamp", "lamp"),
        ("<|channel|>final<|message|>lamp<|return|>", "lamp"),
        ("<answer>lamp</answer><reason>no chair</reason>", "<answer>lamp</answer>"),
        # no marks
        ("Analysis: the lamp", "Analysis: the lamp"),
        ("The final answer is lamp", "The final answer is lamp"),
        ("I think: lamp", "I think: lamp"),
        (" ", " "),
    ],
)
def test_what_stands_behind_the_last_thought_or_outside_counts(text, said):
    assert final_answer(text) == said
    assert final_answer(said) == said


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("length", CutOff), ("max_tokens", CutOff), ("MAX_TOKENS", CutOff), ("model_length", CutOff),
        ("model_context_window_exceeded", CutOff), ("content_filter", Refused), ("SAFETY", Refused),
        ("refusal", Refused), ("RECITATION", Refused), ("PROHIBITED_CONTENT", Refused), ("tool_calls", ToolCall),
        ("function_call", ToolCall), ("stop", str), ("eos_token", str), ("end_turn", str), (None, str),
    ],
)  # fmt: skip
def test_why_an_answer_ended_is_known_by_its_reason(reason, kind):
    assert type(answer_of("The", reason)) is kind


def test_parts_that_are_texts_are_the_answer():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "chair"}]}
    assert (
        text_of([thinking, {"type": "text", "text": "la"}, {"type": "output_text", "text": "mp"}]) == "lamp"
    )
    assert text_of([{"type": "reasoning", "text": "chair"}, "lamp"]) == "lamp"
    with pytest.raises(TypeError):
        text_of(3)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("答案是北京。", "北京"), ("答えは京都です。", "京都"), ("คำตอบคือกรุงเทพครับ", "กรุงเทพ"),
        ("ຄຳຕອບແມ່ນວຽງຈັນ", "ວຽງຈັນ"),
        ("ចម្លើយគឺភ្នំពេញ", "ភ្នំពេញ"), ("အဖြေမှာနေပြည်တော်ဖြစ်", "နေပြည်တော်"), ("정답은 서울입니다.", "서울"),
        ("答案是Paris。", "Paris"), ("价格是4821元", "4821"), ("It is 500km away", "500"), ("第 3 组", "第3组"),
        ("乔治·华盛顿", "乔治华盛顿"), ("ＬＡＭＰ １２", "lamp 12"), ("๔๒", "42"), ("ｶﾞﾗｽ", "ガラス"),
        ("**lamp**", "lamp"), ('{"answer": "lamp"}', "lamp"), (r"\boxed{\text{lamp}}", "lamp"),
        ("lamp<|im_end|>\n<|im_start|>user\nnothing", "lamp"),
        ("cafe\u0301", "café"), ("STRASSE", "Straße"), ("Lon\u00addon", "London"), ("दिल्ली में", "दिल्ली"),
    ],
)  # fmt: skip
def test_an_answer_in_any_script_is_found(answer, right):
    assert is_right(answer, [[right]]) == (True,)
    assert is_right(answer, [[right]], ["nothing"], "first") == (True,)
    assert is_right(unicodedata.normalize("NFD", answer), [[unicodedata.normalize("NFC", right)]]) == (True,)


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [("lamps", "lamp"), ("5001", "500"), ("500a4f", "500"), ("第17组", "7"), ("दाल", "दिल"), ("กุ", "ก")],
)
def test_a_part_of_a_word_a_number_or_a_letter_is_not_found(answer, wrong):
    assert is_right(answer, [[wrong]]) == (False,)


@given(st.text())
def test_normalising_in_any_script_is_done_once(one):
    assert normalised(normalised(one)) == normalised(one)
    assert normalised(unicodedata.normalize("NFD", one)) == normalised(one)


@given(
    st.text(string.ascii_letters + string.digits + " .,-'\n"), st.text(string.ascii_letters + " ", min_size=1)
)
def test_english_is_matched_as_by_padded_words(answer, spelling):
    """The rule of versions 0.1 to 0.3, but for numbers with a unit."""
    within, wanted = f" {normalised(answer)} ", normalised(spelling)
    place = within.find(f" {wanted} ")
    assert place_in(answer, [spelling]) == (place if wanted and place >= 0 else None)


@pytest.mark.parametrize(
    ("text", "words", "places"),
    [
        ("特别数字是7000001。天气", "7000001", [5]), ("500km, 1500, a500, 500", "500", [0, 19]),
        ("lamps", "lamp", []), ("a lamp, lamp", "lamp", [2, 8]), ("A.B. and A.B.C", "A.B.", [0]), ("x", "", []),
        ("ม่วง1ครับ", "ม่วง1", [0]),
    ],
)  # fmt: skip
def test_words_have_places_where_they_stand_whole(text, words, places):
    assert list(word_places(text, words)) == places


def test_targets_that_are_glued_composed_or_in_another_case_have_places(tmp_path):
    """Twenty predictions whose number is glued to letters in half of them, right at the first of two places."""
    rows = []
    for k in range(20):
        said, filler = ("是%dです" if k % 2 else "是 %d ，") % (7000 + k), "天气很好。" * 40
        text = f"{said}{filler}" if k < 10 else f"{filler}{said}"
        rows.append(
            {"index": k, "input": text, "outputs": [str(7000 + k)], "pred": str(7000 + k) if k < 10 else "?"}
        )
    path = tmp_path / "niah_single.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    profile = posbias.read(path)
    assert [profile.mass[0], profile.mass[-1]] == [1, 0]
