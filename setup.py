"""Put the recipes into the package as `nmt/recipes`, with which `nmt recipes` works from a wheel too."""

import shutil
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.build import build

RECIPES = Path("recipes")


class BuildRecipes(Command):
    """A step of `build`; see "Command" and "SubCommand" in setuptools's documentation about extensions."""

    description = "copy the recipes into the package"
    user_options = ()

    def initialize_options(self) -> None:
        self.build_lib: str | None = None
        self.editable_mode = False  # an editable installation finds the recipes where they are

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        for target, source in self.get_output_mapping().items():
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    def get_source_files(self) -> list[str]:
        files = (path for path in sorted(RECIPES.rglob("*")) if path.is_file() and path.suffix != ".pyc")
        # Not the output of a recipe that was run there, nor translations that belong to its results.
        return [str(path) for path in files if not {"runs", "outputs"} & {*path.parts}]

    def get_output_mapping(self) -> dict[str, str]:
        if self.editable_mode:
            return {}
        return {str(Path(self.build_lib or "", "nmt", source)): source for source in self.get_source_files()}

    def get_outputs(self) -> list[str]:
        return list(self.get_output_mapping())


build.sub_commands.append(("build_recipes", None))
setup(cmdclass={"build_recipes": BuildRecipes})
