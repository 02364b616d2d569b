// Texts by <husk/generate.hpp>, for tests/python/test_text_programs.py:
//
//   husk_text_cpp FILE.husk PROMPT [ADAPTER]
//
// Prints what the header gives, as JSON; with the folder of an adapter, what it gives with that.
#include <fstream>
#include <iostream>
#include <iterator>

#include <husk/generate.hpp>
#include <husk/ops.h>
#include <husk/port_host.h>

#include <nlohmann/json.hpp>

using Json = nlohmann::json;

namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The tokens that follow a prompt with an adapter, and what a request gets after its removal.
Json adapted(husk::Generator& generator, const std::string& folder) {
  Json result = {{"count", generator.adapter_count()}};
  husk::TextRequest request;
  request.tokens = {5, 6, 7};
  request.max_new_tokens = 9;
  request.adapter = 2;
  request.part = [&](const husk_text_part& part) {
    result["tokens"].push_back(part.token);
    return true;
  };
  generator.set_adapter(2, content(folder + "/adapter_model.safetensors"),
                        content(folder + "/adapter_config.json"));
  generator.generate(request);
  generator.remove_adapter(2);
  try {
    generator.generate(request);
  } catch (const husk::Error& error) {
    result["refused"] = error.what();
  }
  return result;
}

}  // namespace

int main(int count, char** argv) {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;
  husk::Engine engine(options);
  engine.add_ops(husk_ops_add_all);
  const husk::Program program(engine, argv[1]);
  husk::Generator generator(engine, program);
  if (count > 3) {
    std::cout << adapted(generator, argv[3]) << "\n";
    return 0;
  }
  Json result;
  const std::string prompt = argv[2];
  result["text"] = generator.generate(prompt, 9);
  result["chat"] = generator.chat({{"user", "x"}});
  result["tokens"] = generator.encode(prompt);
  result["embedding"] = generator.embed(generator.encode(prompt)).size();

  // Several requests, of which some end by an exception, by a mask and by a callback.
  husk::TextRequest request;
  request.text = prompt, request.max_new_tokens = 9;
  request.allow = [](const husk_text_choice& choice) -> bool {
    if (choice.token_count == 2) throw std::runtime_error("no more");
    return true;
  };
  std::string other;
  husk::TextRequest second;
  second.text = prompt, second.max_new_tokens = 9;
  second.part = [&](const husk_text_part& part) {
    other.append(part.text, part.bytes);
    return true;
  };
  generator.submit(second);
  try {
    generator.generate(request);
  } catch (const std::runtime_error& error) {
    result["thrown"] = error.what();
  }
  second.part = [&](const husk_text_part& part) {
    result["parts"].push_back(part.reason);
    return false;
  };
  generator.submit(second);
  generator.run();
  result["other"] = other;
  request.text = std::string(200, 'q');
  try {
    generator.generate(request);
  } catch (const husk::Error& error) {
    result["refused"] = error.what();
  }
  result["ended"] = generator.stats().ended;
  std::cout << result.dump(-1, ' ', true) << "\n";
}
