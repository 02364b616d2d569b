/* The model of examples/embedded is left out where only the sizes of the libraries are measured. */
const unsigned char husk_mlp[64] = {0};
