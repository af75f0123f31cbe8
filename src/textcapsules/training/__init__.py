"""Training, from options and texts to a model folder.

A module imports only from those above it:

`losses`: what training minimises
`metrics`: accuracy, exact match, precision, recall and F1
`calibrate`: the rules that choose thresholds
`resolve`: options left on auto, settled by the data
`encoder_choice`: which encoder a run takes that names none
`machine`: enough memory, and a GPU that is awake in time
`prepare`: corpus, vocabulary, word vectors and documents
`join`: two texts with one label each become one with two
`selection`: which epoch and which thresholds dev asks for
`outside`: which texts should get no label
`optimise`: Adam, its learning rate, and the average of the weights
`checkpoint`: the state of a run, to go on with it
`start`: capsules scaled to a length before the first step
`steps`: one pass over the texts, also as CUDA graphs
`ahead`: a training's kernels, compiled at the same time
`loop`: epochs, each with a record
`contrast`: a warm-up of the encoder on pairs of texts
`views`: how much an encoder's states and its pieces count, by dev
`words`: what the words say by themselves, beside a trained network
`folder`: whose folder it is, and its lock
`run`: all of it together
"""
