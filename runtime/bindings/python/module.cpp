// The module husk.runtime._native: the classes on which husk/runtime builds what users see.
#include <nanobind/nanobind.h>

#include <husk/husk.h>

#include "engine.h"
#include "error.h"
#include "program.h"
#include "result.h"
#include "session.h"
#include "text.h"
#include "view.h"

NB_MODULE(_native, module) {
  using namespace husk::python;
  module.attr("version") = husk_version();
  module.def("set_error_classes", &set_error_classes);
  module.def("status_name", [](husk_status status) { return to_str(husk_status_name(status)); });
  module.def("group_id", &group_id);
  bind_program(module);
  bind_session(module);
  module.def("verify", [](nb::object bytes) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(bytes.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
    husk_error error = {};
    const husk_status status = husk_program_verify(buffer.buf, static_cast<size_t>(buffer.len),
                                                   &error);
    PyBuffer_Release(&buffer);
    if (status != HUSK_OK) throw_error(error);
  });
  // torch keeps the programs of torch.compile until the process ends, which is no mistake.
  nb::set_leak_warnings(false);
  // References to objects of Python that outlive the module would keep them for ever.
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    forget_numpy();
    forget_types();
    forget_error_classes();
  }));
}
