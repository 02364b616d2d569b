// The file that the compiler writes: it gets its name when it is complete, so that a program which
// has the old file open keeps the old content, and a failure leaves the old file as it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace husk::compiler {

// Returns true if `path` is a pipe, a device or another thing that is not a regular file, or a name
// of an open file of the process such as /dev/stdout. Such an output is written directly.
bool is_stream(const std::filesystem::path& path);

// A file beside `path` with a temporary name, or `path` itself if is_stream(path). The destructor
// removes the temporary file unless finish() was called. Functions throw a CompileError.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const uint8_t> bytes);
  // Writes at an offset. The file must not be a stream.
  void write_at(uint64_t offset, std::span<const uint8_t> bytes);
  // Cuts or extends the file to `bytes`. The file must not be a stream.
  void resize(uint64_t bytes);
  // Ends writing. Returns the name of the complete file.
  const std::filesystem::path& close();
  // Closes the file, if it is open, and gives it its final name.
  void finish();
  // The same with another name in the same folder.
  void finish_as(const std::filesystem::path& path);

 private:
  [[noreturn]] void fail_to_write(int code) const;
  void open_temporary();

  std::filesystem::path path_;            // without symbolic links if the file exists
  std::filesystem::path temporary_path_;  // empty if path_ is written directly, or after finish()
  int file_ = -1;
  size_t slot_ = 0;  // of temporary_path_, for the signal handler
};

// Makes SIGINT, SIGTERM and SIGHUP remove the temporary file before they end the process, and
// SIGXFSZ an error of write(). Two OutputFiles at a time may exist in a process that calls this.
void remove_output_on_signals();

}  // namespace husk::compiler
