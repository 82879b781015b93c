"""Protocols of `nmt serve`: each comes in one file, and the server answers its clients as well as those of others."""

from conftest import WORDS, small_model
from servers import serving

WHISPER = '''
from starlette.responses import Response
from nmt import opt, options_class, register
from nmt.extensions.serve.protocol import ClientProtocol


@options_class
class WhisperOptions:
    whisper_end: str = opt(".", "what ends each answer")


@register("protocol", "whisper", WhisperOptions)
class Whisper(ClientProtocol):
    """The text of the body is translated, and the answer is plain text."""

    def routes(self):
        return [self.route("/whisper", self.answer, "POST")]

    def error(self, status, message):
        return f"no: {message}"

    async def answer(self, call):
        model = self.service.models.find(None)
        return Response(await self.service.translated_lines(model, call.body.decode()) + self.options.whisper_end)
'''


def test_a_protocol_from_one_file_is_served_together_with_the_others(tmp_path):
    (tmp_path / "whisper.py").write_text(WHISPER)
    model = small_model(tmp_path / "m", d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)
    flags = [f"--plugin={tmp_path / 'whisper.py'}", "--whisper-end=!", "--max-characters=100"]
    with serving(tmp_path, "--model", model, *flags) as server:
        line = " ".join(WORDS[:3])
        translation = server.translate(text=line)["translations"][0]["translation"]
        assert server.ask("POST", "/whisper", line.encode())[:2] == (200, f"{translation}!".encode())
        status, content, _ = server.ask("POST", "/whisper", b"a" * 101)
        assert status == 413 and content.startswith("no: ")
        assert b'protocol="whisper",status="200"' in server.ask("GET", "/metrics")[1]
