"""The text of imported models: pieces of both languages in one vocabulary, tags, and pieces without their segmenter."""

import io
import pickle

import pytest
import sentencepiece

from nmt.errors import UserError
from nmt.extensions.toolkits.transformer import ImportedSide
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline

TEXTS = {
    "en": ["the house is old", "a river and the town", "we see the dog"],
    "fr": ["l'été à Nîmes où ça va", "la forêt être né", "déjà vu"],
    "ru": ["дом стоит", "мы видим город"],
    "ja": ["東京へ行く", "本を買う"],
}
TAGS = (">>fra<<", ">>deu_Latn<<")


def learnt(texts):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()), model.getvalue()


@pytest.mark.parametrize(("source", "target"), [("en", "fr"), ("en", "ja"), ("ru", "fr"), ("ja", "ru")])
def test_a_text_has_the_same_tokens_as_in_its_toolkit(source, target):
    (segmenter, model), (other, _) = learnt(TEXTS[source]), learnt(TEXTS[target])
    pieces = [one.id_to_piece(token) for one in (segmenter, other) for token in range(one.vocab_size())]
    entries = ["</s>", "<unk>", *TAGS, *(piece for piece in dict.fromkeys(pieces) if piece[0] != "<")]
    ids = {entry: number for number, entry in enumerate(entries)}
    imported = ImportedSide.of(source, ids, len(ids), 1, 0, model, "none", "here")
    files = Pipeline(imported.side, imported.side, True).files()
    again = Pipeline.from_files(files.__getitem__, "here").source
    same = pickle.loads(pickle.dumps(again.vocabulary))
    lines = [*TEXTS[source], *TEXTS[target], "é", "%", "the été %é 東京 город"]
    for line in lines:
        theirs = [ids.get(piece, 1) for piece in segmenter.encode(line, out_type=str)]
        assert imported.rows[again.encode(line)].tolist() == theirs
        assert same.encode_batch([line]).ids.tolist() == again.encode(line)
        assert imported.rows[again.encode(f"{TAGS[1]} {line}")].tolist() == [ids[TAGS[1]], *theirs]
    assert any(UNK in again.encode(line) for line in lines)
    assert again.prepare.tags == TAGS and again.unknown_tag(f">>spa<< {lines[0]}") == ">>spa<<"
    assert not any(again.unknown_tag(f"{tag} x") for tag in TAGS)


@pytest.mark.parametrize("piece", ["▁{}", "{}@@"])
def test_pieces_without_their_segmenter_are_refused(piece):
    words = {f"w{number}": number for number in range(3, 60)}
    assert ImportedSide.of("en", words, 60, 1, 0, None, "none", "here").side.size
    with pytest.raises(UserError, match="--segmenter"):
        pieces = {piece.format(word) if number % 2 else word: number for word, number in words.items()}
        ImportedSide.of("en", pieces, 60, 1, 0, None, "none", "here")
