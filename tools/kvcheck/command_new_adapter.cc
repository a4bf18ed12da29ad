// kvcheck new-adapter: a file to begin an adapter with, which passes as it is written.

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "reference/spec/error.h"
#include "tools/corridor/adapters.h"
#include "tools/corridor/cases_file.h"
#include "tools/kvcheck/commands.h"
#include "tools/report/number_text.h"
#include "tools/report/output_file.h"
#include "tools/report/summary.h"

namespace kvcheck {
namespace {

namespace fs = std::filesystem;

// "my_cache" and "my-cache": "MyCache".
std::string ClassNameOf(const std::string& stem) {
  std::string name;
  bool begins = true;
  for (const char c : stem) {
    const bool fits = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (fits) name += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins = !fits;
  }
  const bool is_name = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0;
  return is_name ? name : "Adapter" + name;
}

void ReplaceAll(std::string* text, std::string_view what, const std::string& by) {
  for (size_t at = text->find(what); at != std::string::npos; at = text->find(what, at)) {
    text->replace(at, what.size(), by);
    at += by.size();
  }
}

int NewAdapter(const std::string& name) {
  fs::path path = name;
  if (path.extension() != ".py") path += ".py";
  const std::string stem = path.stem().string();
  if (stem.empty() || stem.find_first_of("\"\\") != std::string::npos) {
    throw Error(ErrorCode::kUsage, "a name is that of a Python file: my_adapter.py", "new-adapter");
  }
  std::error_code error;
  if (fs::exists(path, error)) {
    throw Error(ErrorCode::kUsage,
                "the file is there already, and stays as it is: give another name", path.string());
  }
  std::string text = ReadTextFile(AdapterPackageFile("new_adapter.py"), {});
  ReplaceAll(&text, "NEW_ADAPTER.py", path.string());
  ReplaceAll(&text, "NewAdapter", ClassNameOf(stem));
  ReplaceAll(&text, "new-adapter", stem);
  WriteOutput(path.string(), text);
  std::cout
      << fmt::format(
             "{0} is written: an adapter of a small cache in numpy, which passes as it stands\n"
             "  kvcheck fuzz --impl {0} --cases 1000\n"
             "Put your cache in its place; the file says where. It runs in the Python of the "
             "command, or in the one that KVCHECK_PYTHON names.\n",
             ShellWord(path.string()))
      << std::flush;
  return kExitPassed;
}

}  // namespace

void AddNewAdapterCommand(CLI::App* app, ChosenCommand* chosen) {
  auto name = std::make_shared<std::string>("my_adapter");
  CLI::App* command = app->add_subcommand(
      "new-adapter", "Write a Python file that puts a cache of your own before kvcheck");
  command->footer(
      "The file runs and passes as it is written: kvcheck fuzz --impl FILE.py --cases 1000.\n"
      "Step by step: tools/adapters/tutorial.md.");
  command->add_option("NAME", *name, "Of the file, with .py or without")->capture_default_str();
  command->callback([=] { *chosen = [=] { return NewAdapter(*name); }; });
}

}  // namespace kvcheck
