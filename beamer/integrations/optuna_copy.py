"""A search of `beamer schedule` copied to an Optuna storage, so that Optuna's tools can show it."""

from collections.abc import Mapping, Sequence

import optuna
from optuna.trial import TrialState, create_trial

from beamer.errors import InputError
from beamer.integrations.optuna_samplers import distribution, loss_told, quietly
from beamer.studies.parameters import Parameter, TrialResult


class StudyCopy:
    """The study of a search's name in a storage, which is made where there is none.

    url: as Optuna takes it. Nothing is read back but which trials are there: `update` writes those that are missing, so that a
    copy that broke off anywhere is completed by the next one. Raises `InputError` where the storage cannot be used.
    """

    def __init__(self, url: str, name: str, parameters: Mapping[str, Parameter]) -> None:
        self._url = url
        self._name = name
        self._parameters = parameters
        self._distributions = {key: distribution(parameter) for key, parameter in parameters.items()}
        try:
            with quietly():
                self._study = optuna.create_study(storage=url, study_name=name, load_if_exists=True)
        except Exception as error:
            raise InputError("sampler.storage", url, f"the URL of an Optuna storage ({_first_line(error)})") from error
        self._finished: set[int] = set()
        self._count = 0

    def update(self, drawn: Sequence[Mapping[str, str]], results: Mapping[int, TrialResult]) -> None:
        """Write the trials and results that are not there yet. drawn: values by number. results: by number.

        Raises `InputError` where the study there is of another search, and whatever the storage raises.
        """
        with quietly():
            if self._count == 0:
                self._compare(drawn)
            for values in drawn[self._count :]:
                self._study.add_trial(
                    create_trial(state=TrialState.RUNNING, params=self._read(values), distributions=self._distributions)
                )
                self._count += 1
            for number in sorted(results.keys() - self._finished):
                loss = loss_told(results[number])
                self._study.tell(number, loss, TrialState.FAIL if loss is None else TrialState.COMPLETE, skip_if_finished=True)
                self._finished.add(number)

    def _compare(self, drawn: Sequence[Mapping[str, str]]) -> None:
        """Take in which trials are there. Raises `InputError` where they are others."""
        there = self._study.get_trials(deepcopy=False)
        for number, trial in enumerate(there):
            if number >= len(drawn) or trial.params != self._read(drawn[number]):
                expected = f"a storage without a study {self._name} of another search: trial {number} there is none of this one"
                raise InputError("sampler.storage", self._url, expected)
        self._count = len(there)

    def _read(self, values: Mapping[str, str]) -> dict[str, float | int | str]:
        return {name: parameter.value(values[name]) for name, parameter in self._parameters.items()}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
