"""Backward through time as each fork's CPU code goes it, and as it is derived."""

from __future__ import annotations

from dataclasses import replace

from .rules import RecurrentRule

__all__ = ["ALEXEYAB_RECURRENT", "PJREDDIE_RECURRENT", "TEXTBOOK_RECURRENT"]

PJREDDIE_RECURRENT = RecurrentRule(
    step_statistics="last",
    rnn_reading="sum",
    rnn_passing="self",
    gru_backward=False,
    lstm_before="first step",
    lstm_after="first step",
    lstm_keeps_cell_delta=True,
    conv_lstm_passes_state=False,
    conv_lstm_cell="kept",
    history_passes_all=False,
    inner_convolutions_learn=False,
)

ALEXEYAB_RECURRENT = replace(PJREDDIE_RECURRENT, inner_convolutions_learn=True)

TEXTBOOK_RECURRENT = RecurrentRule(
    step_statistics="own",
    rnn_reading="state",
    rnn_passing="state",
    gru_backward=True,
    lstm_before="state",
    lstm_after="last step",
    lstm_keeps_cell_delta=False,
    conv_lstm_passes_state=True,
    conv_lstm_cell="computed",
    history_passes_all=True,
    inner_convolutions_learn=True,
)
