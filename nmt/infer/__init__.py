"""What is done with a trained model: translating, scoring, evaluating."""
