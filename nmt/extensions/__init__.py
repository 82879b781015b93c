"""Extensions: plug-ins that come with nmt. Nothing outside this folder imports them; the registry finds their components."""
