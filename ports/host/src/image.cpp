// Checks of ELF headers. Source of the layout: <elf.h> and the System V ABI, chapters 4 and 5.
#include "image.h"

#include <elf.h>

#include <cstring>

#include "error.h"

namespace husk::host {

namespace {

// Copies a header out of the image, which may lie at any address of a file.
template <class T>
T header_at(const husk_port_image& image, uint64_t offset) {
  T value;
  memcpy(&value, static_cast<const unsigned char*>(image.data) + offset, sizeof value);
  return value;
}

constexpr bool inside(uint64_t offset, uint64_t size, uint64_t whole) {
  return offset <= whole && size <= whole - offset;
}

husk_status check_file_header(const husk_port_image& image, Elf64_Ehdr& header, husk_error* error) {
  if (image.size < sizeof header) {
    return fail(error, HUSK_INVALID_FILE, "image %s: %llu bytes are too few for ELF", image.name,
                static_cast<unsigned long long>(image.size));
  }
  header = header_at<Elf64_Ehdr>(image, 0);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return fail(error, HUSK_INVALID_FILE, "image %s: not ELF", image.name);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_ident[EI_VERSION] != EV_CURRENT || header.e_version != EV_CURRENT) {
    return fail(error, HUSK_INVALID_FILE, "image %s: not 64-bit little-endian ELF of version 1",
                image.name);
  }
  if (header.e_machine != kMachine) {
    return fail(error, HUSK_UNSUPPORTED, "image %s: for ELF machine %u, this is %s", image.name,
                header.e_machine, kMachineName);
  }
  if (header.e_type != ET_DYN) {
    return fail(error, HUSK_INVALID_FILE, "image %s: ELF type %u; link it as a shared object",
                image.name, header.e_type);
  }
  return HUSK_OK;
}

husk_status check_segments(const husk_port_image& image, const Elf64_Ehdr& header,
                           husk_error* error) {
  if (header.e_phnum == 0 || header.e_phentsize != sizeof(Elf64_Phdr) ||
      !inside(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr), image.size)) {
    return fail(error, HUSK_INVALID_FILE, "image %s: the program headers leave the image",
                image.name);
  }
  bool loads = false, dynamic = false;
  for (uint32_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = header_at<Elf64_Phdr>(image,
                                               header.e_phoff + uint64_t{i} * sizeof(Elf64_Phdr));
    if (!inside(segment.p_offset, segment.p_filesz, image.size) ||
        (segment.p_type == PT_LOAD && segment.p_filesz > segment.p_memsz) ||
        segment.p_vaddr + segment.p_memsz < segment.p_vaddr) {
      return fail(error, HUSK_INVALID_FILE, "image %s: segment %u leaves the image", image.name, i);
    }
    loads |= segment.p_type == PT_LOAD;
    dynamic |= segment.p_type == PT_DYNAMIC;
  }
  if (loads && dynamic) return HUSK_OK;
  return fail(error, HUSK_INVALID_FILE, "image %s: no %s segment", image.name,
              loads ? "dynamic" : "loadable");
}

husk_status check_sections(const husk_port_image& image, const Elf64_Ehdr& header,
                           husk_error* error) {
  if (header.e_shnum == 0)
    return HUSK_OK;  // the image is stripped; the loader does not need sections
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      !inside(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), image.size)) {
    return fail(error, HUSK_INVALID_FILE, "image %s: the section headers leave the image",
                image.name);
  }
  for (uint32_t i = 0; i < header.e_shnum; ++i) {
    const auto section = header_at<Elf64_Shdr>(image,
                                               header.e_shoff + uint64_t{i} * sizeof(Elf64_Shdr));
    if (section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS) continue;
    if (!inside(section.sh_offset, section.sh_size, image.size))
      return fail(error, HUSK_INVALID_FILE, "image %s: section %u leaves the image", image.name, i);
  }
  return HUSK_OK;
}

}  // namespace

husk_status image_check(const husk_port_image& image, husk_error* error) {
  Elf64_Ehdr header;
  if (husk_status status = check_file_header(image, header, error)) return status;
  if (husk_status status = check_segments(image, header, error)) return status;
  return check_sections(image, header, error);
}

}  // namespace husk::host
