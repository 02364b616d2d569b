/* The shared library is made of the static ones; this file says which version it is, for those who look with strings(1). */
const char husk_library_identity[] = "husk 0.1.0";
