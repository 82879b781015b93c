"""The web page of `nmt serve`: its files, the calls that only it makes, and the page itself in Chromium."""

import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import WORDS, reseal, small_model
from servers import serving

from nmt.extensions.serve.protocols.page import FOLDER

SCRIPTS = sorted(FOLDER.glob("*.js"))
PARAGRAPH = " ".join(
    f"{WORDS[i % 25]} {WORDS[(7 * i + 3) % 25]} {WORDS[(3 * i + 1) % 25]}.".capitalize() for i in range(30)
)
SCRIPTS_OF_THE_WORLD = {
    "ar": "الرجل ينام في البيت. الكلب يلعب في الحديقة.",
    "he": "האיש ישן בבית. הכלב משחק בגן.",
    "zh": "那个人在家里睡觉。狗在公园里玩。",
    "ja": "男の人は家で寝ています。犬は公園で遊んでいます。",
    "th": "ผู้ชายนอนหลับในบ้าน",
    "hi": "आदमी सो रहा है। कुत्ता खेल रहा है।",
    "ru": "Мужчина спит. Собака играет.",
    "el": "Ο άντρας κοιμάται. Παίζει ο σκύλος;",
    "ko": "남자가 잔다. 개가 공원에서 논다.",
    "en": "A man sleeps. A dog plays.",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


def model_of(folder: Path, name: str, source: str = "en", target: str = "de") -> Path:
    """A small model for a direction."""
    model = small_model(folder / name, d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)
    settings = (model / "pipeline/pipeline.json").read_bytes()
    for side, code in (("source", source), ("target", target)):
        settings = re.sub(rb'("%s": {\s*"language": )"\w+"' % side.encode(), rb'\1"%s"' % code.encode(), settings)
    reseal(model, "pipeline/pipeline.json", settings)
    return model


@pytest.fixture(scope="module")
def server(folder):
    models = [f"{name}={model_of(folder, name, *name.split('-'))}" for name in ("en-de", "de-en", "ru-en")]
    with serving(folder, *(f"--model={model}" for model in models)) as made:
        yield made


# The files


def test_the_page_loads_only_its_own_files_and_its_policy_allows_nothing_else(server):
    status, page, headers = server.ask("GET", "/")
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert status == 200 and policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
    loaded = re.findall(r'(?:href|src)="(page/[^"]+)"', page.decode())
    kinds = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    for path in {*loaded, *(f"page/{file.name}" for file in SCRIPTS)}:
        status, content, headers = server.ask("GET", f"/{path}")
        assert status == 200 and headers["content-type"].startswith(kinds[Path(path).suffix])
        assert content == (FOLDER / Path(path).name).read_bytes()
    texts = [file.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "") for file in FOLDER.iterdir()]
    assert not any(re.search(r"https?://|\bstyle=|\bon\w+=\"|innerHTML|\beval\(", text) for text in texts)


def test_each_script_finds_the_elements_and_the_functions_that_it_uses():
    ids = set(re.findall(r'\bid="([\w-]+)"', (FOLDER / "page.html").read_text()))
    for script in SCRIPTS:
        text = script.read_text()
        assert set(re.findall(r'byId\("([\w-]+)"\)', text)) <= ids, script.name
        for names, file in re.findall(r'import \{ ([^}]+) \} from "\./(.+?)"', text):
            exported = re.findall(
                r"^export (?:async )?(?:function\*? |const |class )(\w+)", (FOLDER / file).read_text(), re.M
            )
            assert set(names.split(", ")) <= set(exported), script.name


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_each_script_is_valid(script, tmp_path):
    module = tmp_path / f"{script.stem}.mjs"
    module.write_bytes(script.read_bytes())
    checked = subprocess.run(["node", "--check", module], capture_output=True)
    assert checked.returncode == 0, checked.stderr


def test_no_page_turns_off_all_of_its_addresses(folder, server):
    with serving(folder, "--model", folder / "en-de", "--no-page") as bare:
        for path in ("/", "/page/page.js", "/page/facts", "/page/sentences"):
            assert bare.ask("GET", path)[0] == 404


# Its calls


def sentences_of(server, **fields):
    status, found, _ = server.ask("POST", "/page/sentences", fields)
    assert status == 200, found
    return found


def test_the_page_learns_directions_documents_and_limits(server):
    _, facts, _ = server.ask("GET", "/page/facts")
    assert [(row["model"], row["source"], row["target"]) for row in facts["directions"]][:2] == [
        ("en-de", "en", "de"),
        ("de-en", "de", "en"),
    ]
    assert {".docx", ".srt", ".xliff"} <= set(facts["endings"]) and ".pdf" not in facts["endings"]
    assert len(set(facts["endings"])) == len(facts["endings"])
    assert facts["keys"] is False and facts["max_texts"] == 1000 and facts["max_bytes"] == 2 << 20


def test_the_facts_need_no_key_but_the_sentences_do(folder, server):
    (folder / "keys").write_text("secret\n")
    with serving(folder, "--model", folder / "en-de", "--keys", folder / "keys") as locked:
        assert locked.ask("GET", "/page/facts")[1]["keys"] is True
        assert locked.ask("POST", "/page/sentences", {"text": "Ban.", "target": "de"})[0] == 403


def test_a_paragraph_of_30_sentences_gives_30_translations(server):
    rows = sentences_of(server, text=PARAGRAPH, source="en", target="de")["sentences"]
    assert len(rows) == 30 and " ".join(row["text"] for row in rows) == PARAGRAPH
    alone = server.translate(text=[row["text"] for row in rows], model="en-de", split=True)["translations"]
    whole = server.translate(text=PARAGRAPH, model="en-de", split=True)["translations"][0]
    assert (
        "".join(row["gap"] + made["translation"] for row, made in zip(rows, alone, strict=True)) == whole["translation"]
    )


@pytest.mark.parametrize("code", SCRIPTS_OF_THE_WORLD)
def test_sentences_and_the_space_between_them_are_the_whole_text(server, code):
    text = f"  {SCRIPTS_OF_THE_WORLD[code]}\n\n\t{SCRIPTS_OF_THE_WORLD[code]} 😀\n"
    found = sentences_of(server, text=text, source="en", target="de")
    assert "".join(row["before"] + row["text"] for row in found["sentences"]) + found["after"] == text
    assert len(found["sentences"]) >= 2 * (1 if code == "th" else 2)


def test_white_space_markup_and_control_characters_stay_in_the_sentences(server):
    text = "Ban <b>des</b> &amp;\tkit \u0000 {name}. https://a.example/?a=1. Kit!\u2028Ban"
    found = sentences_of(server, text=text, source="en", target="de")
    assert "".join(row["before"] + row["text"] for row in found["sentences"]) + found["after"] == text
    assert [row["text"] for row in found["sentences"]][-2:] == ["Kit!", "Ban"]
    blank = sentences_of(server, text=" \n\t ", target="de")
    assert (blank["model"], blank["sentences"], blank["after"]) == (None, [], " \n\t ")


def test_the_language_is_detected_among_all_languages_of_the_server(server):
    english = "The man walks into the house, and the children are there."
    found = sentences_of(server, text=english, target="de")
    assert (found["model"], found["source"]) == ("en-de", "en")
    assert sentences_of(server, text="Der Mann geht in das Haus, und die Kinder sind da.", target="de")["model"] is None
    russian = sentences_of(server, text="Мужчина идёт в дом, и дети уже там.", target="de")
    assert (russian["model"], russian["source"]) == (None, "ru")
    assert sentences_of(server, text="Мужчина идёт в дом, и дети уже там.", target="en")["model"] == "ru-en"


def test_the_alternatives_for_a_word_share_the_words_before_it(server):
    text = " ".join(WORDS[2:7])
    [row] = server.translate(text=text, model="en-de", split=True)["translations"]
    first = row["translation"].split()[0]
    asked = {"text": {"text": text, "prefix": first}, "model": "en-de", "split": True}
    [row] = server.translate(**asked, alternatives=True, n_best=6)["translations"]
    words = [candidate["text"].split()[:2] for candidate in row["candidates"]]
    assert {word[0] for word in words} == {first}
    assert len({word[1] if len(word) > 1 else "" for word in words}) == len(words) == 6
    status, _, _ = server.ask("POST", "/v1/translate", {**asked, "alternatives": True, "glossary": {"ban": "des"}})
    assert status == 400


# The page in Chromium

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@contextmanager
def opened(port: int, folder: Path, width: int = 1280):
    """The page in a new browser. Errors of its scripts fail the test."""
    playwright = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}")
    errors: list[object] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch_persistent_context(
            folder, executable_path=CHROMIUM, args=FLAGS.split(), viewport={"width": width, "height": 800}
        )
        page = browser.pages[0]
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: errors.append(error))
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("#to option", state="attached")
        yield page
        browser.close()
    assert errors == []


def enter(page, text: str) -> None:
    """Put a text into the page, as pasting does, and wait for its translation."""
    page.evaluate(
        "text => { const area = document.getElementById('source'); area.value = text;"
        " area.dispatchEvent(new Event('input')); }",
        text,
    )
    done(page)


def done(page) -> None:
    page.wait_for_timeout(400)
    page.wait_for_selector("#target[aria-busy=false]:not(.stale)", state="attached")


def shown(page) -> str:
    return page.evaluate("document.getElementById('target').textContent")


@pytest.mark.browser
def test_the_page_shows_every_sentence_of_a_paragraph(server, tmp_path):
    whole = server.translate(text=PARAGRAPH, model="en-de", split=True)["translations"][0]["translation"]
    with opened(server.port, tmp_path) as page:
        page.select_option("#from", "en")
        enter(page, PARAGRAPH)
        assert page.locator(".sentence").count() == 30 and page.locator(".pending").count() == 0
        assert shown(page) == whole


@pytest.mark.browser
def test_the_last_answer_is_shown_after_quick_typing_and_markup_stays_text(server, tmp_path):
    text = "<b>Ban</b> &amp; des. Kit."
    wanted = server.translate(text=text, model="en-de", split=True)["translations"][0]["translation"]
    with opened(server.port, tmp_path) as page:
        page.select_option("#from", "en")
        page.type("#source", text, delay=20)
        assert page.inner_text("#status") == "Translating…"
        done(page)
        assert shown(page) == wanted and "<b>" in wanted
        for text in ("ban\u0000des", "x" * 5000, "ban 😀", "ban \ud800 des"):
            enter(page, text)
            assert page.locator(".failed").count() == 0 and shown(page)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


LATE = """
const send = window.fetch;
let number = 0;
window.fetch = (path, options) => {
  const milliseconds = String(path).includes("sentences") && !number++ ? 2500 : 0;
  return new Promise((resolve) => setTimeout(resolve, milliseconds)).then(() => send(path, { ...options, signal: undefined }));
};
"""  # the first answer arrives after the second one, even if nobody waits for it


@pytest.mark.browser
def test_a_late_answer_never_replaces_a_newer_one(server, tmp_path):
    wanted = server.translate(text=WORDS[1], model="en-de", split=True)["translations"][0]["translation"]
    with opened(server.port, tmp_path) as page:
        page.add_init_script(LATE)
        page.reload()
        page.wait_for_selector("#to option", state="attached")
        page.select_option("#from", "en")
        page.fill("#source", " ".join(WORDS[2:6]))
        page.wait_for_timeout(700)
        page.fill("#source", WORDS[1])
        page.wait_for_timeout(1200)
        assert shown(page) == wanted
        page.wait_for_timeout(2000)
        assert shown(page) == wanted


@pytest.mark.browser
def test_the_keyboard_alone_reaches_a_word_and_chooses_an_alternative(server, tmp_path):
    with opened(server.port, tmp_path) as page:
        page.select_option("#from", "en")
        enter(page, "Ban des kit. Lora mus ban.")
        before = shown(page)
        assert page.locator("#target [tabindex='0']").count() == 1
        page.focus("#source")
        for key in ("Tab", "Tab", "ArrowDown", "Home", "Enter"):
            page.keyboard.press(key)
        assert page.locator("#target [tabindex='0']").count() == 1
        page.wait_for_selector("#alternatives [role=option]")
        page.keyboard.press("Escape")
        assert shown(page) == before and page.evaluate("document.activeElement.className") == "word"
        page.keyboard.press("Enter")
        page.wait_for_selector("#alternatives [role=option]:focus")
        page.keyboard.press("ArrowDown")
        wanted = page.evaluate("document.activeElement.textContent")
        page.keyboard.press("Enter")
        page.wait_for_selector("#alternatives", state="hidden")
        assert page.inner_text("#sentence-1") == wanted and page.inner_text("#sentence-0") in before
        assert page.evaluate("document.activeElement.className") == "word"


@pytest.mark.browser
def test_the_page_waits_for_a_server_that_restarts(folder, server, tmp_path):
    with serving(folder, "--model", folder / "en-de") as first, opened(first.port, tmp_path) as page:
        enter(page, "Ban des.")
        first.process.kill()
        first.process.wait()
        page.fill("#source", "Ban des. Kit mus.")
        page.wait_for_selector("#retry")
        assert "cannot be reached" in page.inner_text("#status")
        with serving(folder, "--model", folder / "en-de", f"--port={first.port}"):
            done(page)
            assert page.locator(".sentence").count() == 2 and page.locator("#status.error").count() == 0


@pytest.mark.browser
def test_the_page_waits_as_long_as_the_rate_limit_says(folder, server, tmp_path):
    limited = serving(folder, "--model", folder / "en-de", "--requests-per-minute=30")
    with limited as busy, opened(busy.port, tmp_path) as page:
        while busy.ask("POST", "/page/sentences", {"text": "Ban.", "target": "de"})[0] != 429:
            pass
        page.fill("#source", "Ban des.")
        page.wait_for_selector("#countdown:not([hidden])")
        assert "too many requests" in page.inner_text("#status")
        done(page)
        assert page.locator(".pending").count() == 0 and page.is_hidden("#countdown")


@pytest.mark.browser
def test_candidates_and_attention_unfold_and_the_panes_scroll_together(server, tmp_path):
    panes = "['source', 'mirror', 'target'].map(id => document.getElementById(id))"
    share = f"{panes}.map(pane => pane.scrollTop / (pane.scrollHeight - pane.clientHeight))"
    text = " ".join(WORDS[:5])
    with opened(server.port, tmp_path) as page:
        page.select_option("#from", "en")
        enter(page, text)
        page.click("#details summary")
        page.wait_for_selector("#attention td[title]")
        assert page.locator("#attention thead th").all_inner_texts() == text.split()
        page.click("#candidates li:nth-child(2) button")
        page.wait_for_selector("#candidates li:nth-child(2) button[aria-pressed=true]")
        assert shown(page) in page.inner_text("#candidates li:nth-child(2)")
        page.click("#details summary")
        low = page.evaluate("document.querySelector('.panes').offsetHeight")
        enter(page, "\n".join(WORDS * 3))
        assert page.evaluate("document.querySelector('.panes').offsetHeight") > low
        for pane in ("source", "target"):
            page.evaluate(f"document.getElementById('{pane}').scrollTop = {500 if pane == 'source' else 200}")
            page.wait_for_timeout(500)
            shares = page.evaluate(share)
            assert max(shares) - min(shares) < 0.02 < min(shares)


@pytest.mark.browser
def test_a_narrow_page_without_storage_translates_and_keeps_a_history(folder, server, tmp_path):
    (folder / "keys").write_text("secret\n")
    forbidden = "Object.defineProperty(window, '{}', {{ get() {{ throw new DOMException('no', 'SecurityError'); }} }});"
    locking = serving(folder, "--model", folder / "en-de", "--keys", folder / "keys")
    with locking as locked, opened(locked.port, tmp_path, width=390) as page:
        page.add_init_script("".join(map(forbidden.format, ("localStorage", "sessionStorage"))))
        page.reload()
        page.fill("#source", "Ban des.")
        page.wait_for_selector("#status.error")
        page.fill("#key", "secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#target .sentence:not(.pending)")
        page.click("#history summary")
        page.wait_for_selector("#entries button")
        assert "Ban des." in page.inner_text("#entries") and "blocks storage" in page.inner_text("#history-note")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.click("#forget")
        assert page.locator("#entries button").count() == 0


DOCUMENTS = {
    "film.srt": "1\n00:00:01,000 --> 00:00:02,000\n{}\n",
    "site.html": "<!DOCTYPE html><html><body><p>{}</p></body></html>",
    "notes.md": "# {}\n",
    "app.json": '{{"greeting": "{}"}}',
    "app.po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{}"\nmsgstr ""\n',
    "clip.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n{}\n",
    "table.csv": 'en,de\n"{}",\n',
}


@pytest.mark.browser
def test_dropped_documents_are_translated_and_a_text_file_is_opened(server, tmp_path):
    text = " ".join(WORDS[:4])
    wanted = server.translate(text=text, model="en-de", split=True)["translations"][0]["translation"]
    drop = """files => {
        const data = new DataTransfer();
        for (const [name, content] of files) data.items.add(new File([content], name));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }"""
    with opened(server.port, tmp_path) as page:
        page.select_option("#from", "en")
        page.evaluate(drop, [[name, pattern.format(text)] for name, pattern in DOCUMENTS.items()])
        for number, name in enumerate(DOCUMENTS):
            with page.expect_download() as download:
                page.locator("#documents .button").nth(number).click()
            stem, ending = name.split(".")
            assert download.value.suggested_filename == f"{stem}.de.{ending}"
            found = re.sub(r'[\s"]+', " ", Path(download.value.path()).read_text())  # some formats wrap lines
            assert wanted in found, name
        page.evaluate(drop, [["paper.pdf", "%PDF"], ["text.txt", text]])
        done(page)
        assert page.input_value("#source") == text and shown(page) == wanted
        page.wait_for_selector("#documents .error")
        assert "paper.pdf" in page.inner_text("#documents .error")
