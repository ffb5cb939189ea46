"""The page in a real browser: it opens without complaints, sorts, filters, fits a phone, and runs no foreign code."""

import pytest
from made_up_runs import HOSTILE, write_metrics, write_run

from stapo_trl.observe.report import build_report


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return build_report([write_run(tmp_path_factory.mktemp("made-up") / "run", num_steps=60, num_tokens=900)])


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made-up")
    return build_report([write_run(folder / name, seed=seed) for seed, name in enumerate(["grpo", "stapo"])])


def column(page, index: int) -> list[str]:
    return page.eval_on_selector_all(
        f"#tokens tbody tr td:nth-child({index})", "cells => cells.map(c => c.textContent)"
    )


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace("−", "-").replace(",", "")) for text in texts]


def test_the_page_opens_without_complaints_or_requests(open_page, report):
    page = open_page(report)
    assert page.complaints == [] and page.requests == [report.resolve().as_uri()]
    assert page.locator("#curves .chart svg").count() == 6
    assert page.locator("#tokens tbody tr").count() == 25


def test_no_token_runs_as_code(open_page, tmp_path):
    run = write_run(tmp_path / "<img src=x onerror=alert(6)>", num_tokens=len(HOSTILE) * 40, texts=HOSTILE)
    page = open_page(build_report([run], tmp_path / "report"))
    page.fill("#search", "<script>")
    assert "<script>alert(1)</script>" in page.text_content("#tokens tbody")
    page.select_option("#completion", "1")
    page.hover("#text span >> nth=3")
    assert page.complaints == [] and page.locator("script").count() == 2 and page.locator("img").count() == 0
    # What an injected element could do, the policy refuses
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s) }"
    )
    assert page.evaluate("() => window.ran") is None


def test_the_table_sorts_by_each_number_in_both_directions(open_page, report):
    page = open_page(report)
    for index, name in ((1, "Step"), (3, "Prob, %"), (5, "Entropy"), (6, "Grad norm")):
        header = page.locator("#tokens th", has_text=name)
        header.locator("button").click()
        first = header.get_attribute("aria-sort")
        values = numbers(column(page, index))
        assert values == sorted(values, reverse=first == "descending")
        header.locator("button").click()
        assert {first, header.get_attribute("aria-sort")} == {"ascending", "descending"}
        assert numbers(column(page, index)) == sorted(numbers(column(page, index)), reverse=first == "ascending")
    assert page.locator("#tokens th[aria-sort=none]").count() == 5


def test_the_table_filters_by_text_and_run_and_turns_pages(open_page, comparison):
    page = open_page(comparison)
    everything = int(page.text_content("#found").split(" of ")[1].split()[0])
    page.fill("#search", "\\boxed{")
    shown = int(page.text_content("#found").split()[0])
    assert 0 < shown < everything
    assert all("\\boxed{" in a + b for a, b in zip(column(page, 3), column(page, 8), strict=True))
    page.select_option("#of-run", label="stapo")
    assert set(column(page, 1)) == {"stapo"}
    page.fill("#search", "")
    first = column(page, 3)
    page.click("#after")
    assert page.text_content("#page").startswith("page 2") and column(page, 3) != first
    page.click("#before")
    assert column(page, 3) == first and page.is_disabled("#before")
    page.fill("#search", "no such text")
    assert column(page, 3) == [] and page.text_content("#found").startswith("0 of")


def test_nothing_overflows_sideways(open_page, report, comparison):
    cases = [(path, width) for path in (report, comparison) for width in (320, 390, 768, 1280)]
    fits = "document.scrollingElement.scrollWidth <= innerWidth"
    assert not [case for case in cases if not open_page(case[0], width=case[1]).evaluate(fits)]


def test_pointing_at_a_curve_and_at_a_point_shows_numbers(open_page, comparison):
    page = open_page(comparison)
    page.locator("#entropy svg").hover()
    tip = page.text_content("#tip")
    assert tip.startswith("step ") and "grpo" in tip and "stapo" in tip
    assert page.locator(".hair[visibility=visible]").count() == 6  # the same step in every panel
    page.uncheck("[data-run='0']")
    page.locator("#entropy svg").hover(position={"x": 150, "y": 100})
    assert "grpo" not in page.text_content("#tip")
    page.locator("#entropy").focus()
    before = page.text_content("#tip")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#tip") != before
    svg = page.locator("#scatter-0 svg")
    box = svg.bounding_box()
    for x in range(60, int(box["width"]), 12):
        svg.hover(position={"x": x, "y": box["height"] * 0.85})
        if page.is_visible("#tip"):
            break
    assert "probability" in page.text_content("#tip") and page.complaints == []


def test_completions_are_coloured_and_walked_with_the_keys(open_page, report):
    page = open_page(report)
    shades = "spans => spans.map(span => span.style.getPropertyValue('--shade'))"
    by_prob = page.eval_on_selector_all("#text span", shades)
    page.check("[value=entropy]")
    assert page.eval_on_selector_all("#text span", shades) != by_prob
    page.check("[value=silenced]")
    assert page.get_attribute("#text", "data-shade") == "silenced"
    page.focus("#text")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "position 1 " in page.text_content("#token") and page.locator("#text .chosen").count() == 1


def test_dark_and_light_follow_the_system_and_the_button(open_page, report):
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = (open_page(report, color_scheme=scheme) for scheme in ("light", "dark"))
    colors = [page.evaluate(background) for page in (light, dark)]
    assert colors[0] == "rgb(255, 255, 255)" != colors[1]
    for page in (light, dark):
        page.click("#theme")
    assert [page.evaluate(background) for page in (light, dark)] == colors[::-1]


def test_text_can_be_read_in_both_themes(open_page, report):
    """WCAG AA: a contrast of 4.5 between text and page, for each colour that text takes."""
    contrast = """role => {
        const style = getComputedStyle(document.documentElement);
        const luminance = (name) => {
            const hex = style.getPropertyValue(name).trim();
            const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
                .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const [a, b] = [luminance(role), luminance("--page")].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05);
    }"""
    for scheme in ("light", "dark"):
        page = open_page(report, color_scheme=scheme)
        for role in ("--ink", "--muted", "--silenced", *(f"--run-{index}" for index in range(6))):
            assert page.evaluate(contrast, role) >= 4.5, (scheme, role)


def test_a_page_without_a_token_log_opens_without_complaints(open_page, tmp_path):
    write_metrics(tmp_path, num_steps=4)
    page = open_page(build_report([tmp_path]))
    assert page.complaints == [] and page.locator("#tokens").count() == 0
