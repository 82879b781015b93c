"""Extensions of existing vocabularies: new entries, alternative segmentations of words, and other tools' subwords."""
