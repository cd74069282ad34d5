"""The pages in a browser: figures drawn, slider, filters, keys, phone, dark, print; the console stays empty (see `opened`)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By

from tests.page.conftest import Open

pytestmark = pytest.mark.page

FIGURES = (
    "fabric",
    "queues",
    "rates",
    "gantt",
    "histogram",
    "paths",
    "fct",
    "slowdown",
    "losses",
    "reorder",
    "ports",
    "flows",
)


def links(chrome: Chrome) -> list[str]:
    found: list[str] = chrome.execute_script(
        "return [...document.querySelectorAll('#fabric .link')].map(l => l.getAttribute('stroke-width'))"
    )
    return found


def queue_bars(chrome: Chrome) -> list[str]:
    found: list[str] = chrome.execute_script(
        "return [...document.querySelectorAll('#fabric [data-port] rect:last-child')].map(r => r.getAttribute('height'))"
    )
    return found


def slide(chrome: Chrome, frame: int) -> None:
    chrome.execute_script(
        "const s = document.getElementById('time'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))", frame
    )


def wide(chrome: Chrome) -> int:
    width: int = chrome.execute_script("return document.documentElement.scrollWidth")
    return width


def chips(chrome: Chrome) -> list[str]:
    return [c.text for c in chrome.find_elements(By.CSS_SELECTOR, "#chips button")]


@pytest.mark.parametrize("kind", ["incast", "allreduce"])
def test_every_figure_is_drawn_and_carries_verdict_clock_tdf_seed(
    kind: str, opened: Open, request: pytest.FixtureRequest
) -> None:
    chrome = opened(request.getfixturevalue(kind))
    for name in FIGURES:
        figure = chrome.find_element(By.ID, name)
        assert (
            figure.find_element(By.TAG_NAME, "figcaption").text == "use with care · virtual clock · TDF 1 · seed 1"
        ), name
        drawn = figure.find_elements(By.CSS_SELECTOR, "svg path, svg rect, tbody tr, .empty")
        assert drawn, name
        assert not any("NaN" in (d.get_attribute("d") or "") for d in drawn), name
    assert "Verdict: Use with care" in chrome.find_element(By.ID, "verdict").text
    assert "F9 sampler: one gap of 14 us" in chrome.find_element(By.ID, "verdict").text


def test_the_fabric_has_every_node_both_directions_and_a_queue_a_port(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    assert len(chrome.find_elements(By.CSS_SELECTOR, "#fabric .node")) == 12
    assert len(links(chrome)) == 24 and len(queue_bars(chrome)) == 24


def test_the_slider_moves_the_fabric_picture(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    slide(chrome, 0)
    early, start = queue_bars(chrome), links(chrome)
    slide(chrome, 30)
    assert queue_bars(chrome) != early and links(chrome) != start
    assert "of" in chrome.find_element(By.CSS_SELECTOR, ".bar output").text


def test_a_frame_without_samples_is_hatched_not_empty(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    chrome.execute_script("FL.current.set({t: 206000})")
    fill = "return document.querySelector('#fabric [data-port=\"leaf1:host7\"] rect').getAttribute('fill')"
    assert chrome.execute_script(fill) == "url(#hatch)"
    chrome.execute_script("FL.current.set({t: 100000})")
    assert chrome.execute_script(fill) == "var(--panel)"


def test_a_gap_breaks_the_line_and_is_marked(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    assert len(chrome.find_elements(By.CSS_SELECTOR, "#queues .gap")) == 1
    path = chrome.find_element(By.CSS_SELECTOR, '#queues path[data-id="leaf1:host7"]').get_attribute("d") or ""
    assert path.count("M") == 2  # the pen was lifted once


def test_play_runs_and_space_and_arrows_work(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    slide(chrome, 0)
    body = chrome.find_element(By.TAG_NAME, "body")
    chrome.execute_script("document.activeElement.blur()")
    now = "return FL.current.state.t"
    before = chrome.execute_script(now)
    body.send_keys(Keys.ARROW_RIGHT)
    after = chrome.execute_script(now)
    assert after > before
    body.send_keys(Keys.SPACE)
    assert chrome.find_element(By.ID, "play").text.endswith("pause")
    body.send_keys(Keys.SPACE)
    assert chrome.find_element(By.ID, "play").text.endswith("play")
    assert chrome.execute_script(now) >= after


def test_a_click_on_a_port_filters_and_escape_shows_all_again(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    port = chrome.find_element(By.CSS_SELECTOR, '#fabric [data-port="spine0:leaf1"]')
    ActionChains(chrome).move_to_element(port).click().perform()
    assert chips(chrome) == ["port spine0:leaf1 ✕"]
    strong = [p.get_attribute("data-id") for p in chrome.find_elements(By.CSS_SELECTOR, "#queues .series.strong")]
    assert strong == ["spine0:leaf1"]
    assert chrome.find_elements(By.CSS_SELECTOR, "#queues .series.faded")
    shown = chrome.find_element(By.CSS_SELECTOR, "#histogram select")
    assert shown.get_attribute("value") == "spine0:leaf1"
    assert chrome.find_element(By.CSS_SELECTOR, "#ports tr.chosen td").text == "spine0:leaf1"
    chrome.find_element(By.TAG_NAME, "body").send_keys(Keys.ESCAPE)
    assert chips(chrome) == [] and not chrome.find_elements(By.CSS_SELECTOR, "#queues .series.faded")


def test_a_click_on_a_flow_filters_rates_transfers_and_paths(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    button = chrome.find_element(By.XPATH, "//figure[@id='rates']//button[contains(., 'host3')]")
    chrome.execute_script("arguments[0].click()", button)
    assert chips(chrome) == ["host3 → host7 ✕"]
    strong = [p.get_attribute("data-id") for p in chrome.find_elements(By.CSS_SELECTOR, "#rates .series.strong")]
    assert len(strong) == 1 and strong[0].startswith("3/")
    faded = chrome.find_elements(By.CSS_SELECTOR, "#gantt .bar-mark.faded")
    assert len(faded) == 6
    assert "1 of 7" in chrome.find_element(By.ID, "paths").text


def test_keyboard_alone_selects_a_port(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    row = chrome.find_element(By.CSS_SELECTOR, "#ports tbody tr")
    row.send_keys(Keys.ENTER)
    assert chips(chrome)[0].startswith("port leaf")
    focusable = chrome.find_elements(By.CSS_SELECTOR, '#fabric [data-port][tabindex="0"][role="button"][aria-label]')
    assert len(focusable) == 24


def test_hover_shows_the_numbers_of_that_moment(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    chart = chrome.find_element(By.CSS_SELECTOR, "#queues svg")
    ActionChains(chrome).move_to_element_with_offset(chart, -150, 0).perform()
    tip = chrome.find_element(By.ID, "tip")
    assert tip.is_displayed() and "leaf1:host7" in tip.text and "kB" in tip.text


def test_drag_zooms_every_time_axis_and_a_double_click_undoes_it(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    chart = chrome.find_element(By.CSS_SELECTOR, "#queues svg")
    ActionChains(chrome).move_to_element_with_offset(chart, -200, 10).click_and_hold().move_by_offset(
        200, 0
    ).release().perform()
    zoom: Any = chrome.execute_script("return FL.current.state.zoom")
    assert zoom is not None and zoom[0] < zoom[1]
    assert "zoomed ✕" in chips(chrome)
    chrome.execute_script("FL.current.set({zoom: null})")
    assert chips(chrome) == []


def test_tables_sort_by_a_click_on_a_heading(opened: Open, incast: Path) -> None:
    chrome = opened(incast)
    heading = chrome.find_element(By.XPATH, "//figure[@id='ports']//th/button[starts-with(., 'dropped')]")
    chrome.execute_script("arguments[0].click()", heading)
    column = [r.text for r in chrome.find_elements(By.CSS_SELECTOR, "#ports tbody td:nth-child(10)")]
    numbers = [int(c.replace(",", "")) for c in column]
    assert numbers[0] > 0 and numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize("kind", ["incast", "allreduce", "comparison"])
def test_on_a_phone_nothing_sticks_out(
    kind: str, opened: Open, request: pytest.FixtureRequest, browser: Chrome
) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 375, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    )
    chrome = opened(request.getfixturevalue(kind))
    assert wide(chrome) <= 375


def test_dark_mode_and_print_have_their_own_colours(opened: Open, incast: Path, browser: Chrome) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    chrome = opened(incast)
    light = chrome.execute_script(ground)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert chrome.execute_script(ground) != light
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", **dark})
    assert chrome.execute_script(ground) == "rgb(255, 255, 255)"
    assert not chrome.find_element(By.CSS_SELECTOR, ".bar").is_displayed()
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000


def test_a_comparison_shows_every_run_on_one_scale(opened: Open, comparison: Path) -> None:
    chrome = opened(comparison)
    assert len(chrome.find_elements(By.CSS_SELECTOR, "#headline li")) == 3
    assert [h.text for h in chrome.find_elements(By.CSS_SELECTOR, "#differences th")][1:] == ["dcqcn", "nscc", "none"]
    tops = []
    for i in range(3):
        assert chrome.find_elements(By.CSS_SELECTOR, f"#queues{i} .series")
        labels = chrome.find_elements(By.CSS_SELECTOR, f'#queues{i} text[text-anchor="end"]')
        tops.append([t.text for t in labels if t.text.endswith("B") and " " in t.text and len(t.text) < 9])
    assert tops[0] == tops[1] == tops[2]
    early = chrome.execute_script(
        "return document.querySelector('#fabric2 [data-port=\"leaf1:host7\"] rect:last-child').getAttribute('height')"
    )
    slide(chrome, 1)
    assert early != chrome.execute_script(
        "return document.querySelector('#fabric2 [data-port=\"leaf1:host7\"] rect:last-child').getAttribute('height')"
    )
