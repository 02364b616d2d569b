/* A libcuda.so.1 from before CUDA 12: it has a version but no cuGetProcAddress_v2. */
__attribute__((visibility("default"))) int cuDriverGetVersion(int* version);
int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
