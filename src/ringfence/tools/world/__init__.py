"""The tools of an agent behind one door, as models see them: names, schemas, answers (requirement E8)."""
