/* CMake wants a source for a shared library, also for one that is made of static ones. Nothing is
 * defined here: two libraries have this file. */
typedef int husk_library_of_archives;
