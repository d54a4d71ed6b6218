/* Recurrent layers: a part of darknetbn.h, which includes it where its types are known. */
#ifndef DARKNETBN_RECURRENT_H
#define DARKNETBN_RECURRENT_H

/* cdef begin */

/* STATUS_STATE where the state is of another number of sequences than the batch. */
typedef enum { RNN_INPUT_LAYER, RNN_SELF_LAYER, RNN_OUTPUT_LAYER } rnn;
typedef enum { GRU_WZ, GRU_WR, GRU_WH, GRU_UZ, GRU_UR, GRU_UH } gru; /* w reads the state, u the input */
typedef enum {
    LSTM_WF,
    LSTM_WI,
    LSTM_WG,
    LSTM_WO,
    LSTM_UF,
    LSTM_UI,
    LSTM_UG,
    LSTM_UO,
    LSTM_VF,
    LSTM_VI,
    LSTM_VO
} lstm; /* v reads the cell (peephole) */

typedef struct {
    size_t inputs, hidden, outputs;
    activation activation, self_activation;
    int batch_normalize, shortcut;
} rnn_options;

status make_rnn_layer(layer **l, const rnn_options *o, const batchnorm_rule *bn, const layer_rule *rule);
/* o: of the output's convolution; the other two have its size, too, and give `hidden` channels. */
status make_crnn_layer(layer **l, const convolutional_options *o, size_t hidden, int shortcut, const batchnorm_rule *bn,
                       const layer_rule *rule);
/* candidate: the activation of the new state before it is mixed with the old one */
status make_gru_layer(layer **l, size_t inputs, size_t outputs, activation candidate, int batch_normalize, const batchnorm_rule *bn,
                      const layer_rule *rule);
status make_lstm_layer(layer **l, size_t inputs, size_t outputs, int batch_normalize, const batchnorm_rule *bn,
                       const layer_rule *rule);
status make_conv_lstm_layer(layer **l, const convolutional_options *o, int peephole, float state_constrain,
                            const batchnorm_rule *bn, const layer_rule *rule);
/* The last n inputs of a sequence, the newest first. */
status make_history_layer(layer **l, size_t c, size_t h, size_t w, size_t n, const layer_rule *rule);
/* The state becomes zeros for that many sequences; 0: the next forward makes it, for its own. */
status reset_recurrent_layer(layer *l, size_t sequences);

/* cdef end */

#endif
