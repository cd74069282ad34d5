"""Headless Chromium on pages made from the toy model. In CI a missing browser fails; elsewhere its tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from emulator.report.compare import compare
from emulator.report.page import make_page
from tests.data.runs import finished

Open = Callable[[Path], Chrome]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One browser for all tests, with the network switched off."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        if os.environ.get("CI"):
            pytest.fail("no chromium or chromedriver: install Debian's chromium and chromium-driver")
        pytest.skip("no chromium or chromedriver (Debian: chromium, chromium-driver)")
    options = ChromeOptions()
    options.binary_location = binary
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        "--window-size=1280,900", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=Service(driver))
    chrome.execute_cdp_cmd("Network.enable", {})
    chrome.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    yield chrome
    chrome.quit()


@pytest.fixture
def opened(browser: Chrome) -> Iterator[Open]:
    """Opens a page, waits until it is drawn; at the end of the test its console must be empty."""

    def go(path: Path) -> Chrome:
        browser.get_log("browser")
        browser.get(path.as_uri())
        WebDriverWait(browser, 20).until(lambda b: b.execute_script("return document.body.dataset.ready") == "yes")
        return browser

    yield go
    assert browser.get_log("browser") == []
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.fixture(scope="session")
def incast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a 7:1 incast with drops, marks, and a gap in its samples."""
    return make_page(finished(tmp_path_factory.mktemp("incast") / "run", "incast", cc="none"))


@pytest.fixture(scope="session")
def allreduce(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a ring all-reduce."""
    return make_page(finished(tmp_path_factory.mktemp("ring") / "run", "allreduce", transport="mrc", cc="nscc"))


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs side by side."""
    folder = tmp_path_factory.mktemp("compare")
    runs = [finished(folder / cc, "incast", cc=cc, name=cc) for cc in ("dcqcn", "nscc", "none")]
    return compare(runs).page(folder / "compare.html")
