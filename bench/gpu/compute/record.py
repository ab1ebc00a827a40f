"""The one file that all pieces add to."""
import json
import pathlib
import time
import traceback


class Record:
    """Cells by name and by what was measured; written after each."""

    def __init__(self, folder, budget, revision, again=False):
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "gpu-compute.json"
        self.kept = json.loads(self.file.read_text()) if self.file.exists() else {"cells": {}, "notes": {}}
        self.begun, self.budget, self.revision, self.again = time.monotonic(), budget, revision, again

    def about(self, **facts):
        self.kept |= facts
        self.write()

    def has(self, name, subject):
        cell = self.kept["cells"].get(name, {}).get(subject)
        if self.again and subject != "without" and f"{name} | {subject}" not in self.of(self.revision):
            return False
        return cell is not None and not (isinstance(cell, dict) and "failed" in cell)

    def of(self, revision):
        """The cells that were measured with a revision of the library."""
        return self.kept.setdefault("revisions", {}).setdefault(revision, [])

    def found(self, name, subject, measure):
        """What is there, or else what is measured now. A cell that fails is recorded and costs no other; None then."""
        if self.has(name, subject):
            return self.kept["cells"][name][subject]
        since = time.monotonic()
        if since - self.begun > self.budget:
            print(f"no time left for {name}, {subject}", flush=True)
            return None
        try:
            result = measure()
        except Exception as error:
            # No path of the machine.
            at = [f"{pathlib.Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
            result = {"failed": f"{type(error).__name__}: {error}"[:600], "at": at}
        self.kept["cells"].setdefault(name, {})[subject] = result
        for cells in self.kept.setdefault("revisions", {}).values():
            if f"{name} | {subject}" in cells:
                cells.remove(f"{name} | {subject}")
        if subject != "without":
            self.of(self.revision).append(f"{name} | {subject}")
        self.write()
        shown = {key: value for key, value in result.items() if key not in ("windows", "windows_100ms", "at", "tenants_raw")} if isinstance(result, dict) else result
        print(f"[{since - self.begun:.0f} s +{time.monotonic() - since:.1f}] {name} | {subject}:", json.dumps(shown)[:600], flush=True)
        return None if isinstance(result, dict) and "failed" in result else result

    def note(self, name, subject, text):
        self.kept["notes"].setdefault(name, {})[subject] = text
        if text and text[1]:
            print(f"note: {name} | {subject}: {text}"[:600], flush=True)
        self.write()

    def write(self):
        lines = {name: ",\n".join(f"   {json.dumps(subject)}: {json.dumps(cell)}" for subject, cell in cells.items()) for name, cells in self.kept["cells"].items()}
        head = {key: value for key, value in self.kept.items() if key != "cells"}
        cells = ",\n".join(f"  {json.dumps(name)}: {{\n{text}\n  }}" for name, text in lines.items())
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(head, indent=1)[:-2] + ',\n "cells": {\n' + cells + "\n }\n}\n")
        new.replace(self.file)
