// Texts by <husk/generate.hpp>, for tests/python/test_text.py:
//
//   husk_text_cpp FILE.husk PROMPT
//
// Prints what the header gives, as JSON.
#include <iostream>

#include <husk/generate.hpp>
#include <husk/ops.h>
#include <husk/port_host.h>

#include <nlohmann/json.hpp>

using Json = nlohmann::json;

int main(int, char** argv) {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;
  husk::Engine engine(options);
  engine.add_ops(husk_ops_add_all);
  const husk::Program program(engine, argv[1]);
  husk::Generator generator(engine, program);
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
