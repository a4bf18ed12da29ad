// kvcheck completion: what a shell completes after `kvcheck`, written from the commands and options
// that the command line itself knows.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tools/kvcheck/commands.h"
#include "tools/report/summary.h"

namespace kvcheck {
namespace {

struct OptionWords {
  std::vector<std::string> names;  // "--json", "-j"
  bool takes_value = false;
  std::vector<std::string> values;  // "on", "off"; empty: any, a file among them
  std::string help;
};

struct CommandWords {
  std::string path;  // "bench formats"; "" of the tool
  std::string help;
  std::vector<std::string> commands;  // below it
  std::vector<OptionWords> options;
};

// "TYPE:{f32,f16,bf16}" has the values of CLI::IsMember.
std::vector<std::string> ValuesOf(const std::string& type) {
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin);
  std::vector<std::string> values;
  if (begin == std::string::npos || end == std::string::npos) return values;
  for (size_t at = begin + 1; at < end;) {
    const size_t next = std::min(type.find(',', at), end);
    values.push_back(type.substr(at, next - at));
    at = next + 1;
  }
  return values;
}

void Collect(const CLI::App& app, const std::string& path, std::vector<CommandWords>* all) {
  CommandWords words{path, app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    OptionWords of;
    for (const std::string& name : option->get_lnames()) of.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) of.names.push_back("-" + name);
    if (of.names.empty()) continue;  // a positional argument
    of.takes_value = option->get_items_expected_max() > 0;
    of.values = ValuesOf(option->get_type_name());
    of.help = option->get_description();
    words.options.push_back(std::move(of));
  }
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : below) words.commands.push_back(command->get_name());
  all->push_back(std::move(words));
  for (const CLI::App* command : below) {
    Collect(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), all);
  }
}

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\n') {
      quoted += ' ';
    } else if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::vector<std::string> NamesOf(const CommandWords& command) {
  std::vector<std::string> names;
  for (const OptionWords& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

// The lines of `case` that follow the words to the command that they name.
std::string PathCases(const std::vector<CommandWords>& all, const char* line) {
  std::string text;
  for (const CommandWords& command : all) {
    if (command.path.empty()) continue;
    const size_t last = command.path.rfind(' ');
    const std::string before = last == std::string::npos ? "" : command.path.substr(0, last);
    const std::string word =
        last == std::string::npos ? command.path : command.path.substr(last + 1);
    text += fmt::format(fmt::runtime(line), Quoted(before + " " + word), Quoted(command.path));
  }
  return text;
}

// bash and zsh differ in where the words are and in how a list is offered.
std::string BourneScript(const std::vector<CommandWords>& all, bool zsh) {
  std::string values;
  std::string words;
  for (const CommandWords& command : all) {
    for (const OptionWords& option : command.options) {
      if (!option.takes_value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) {
        patterns.push_back(Quoted(command.path + ":" + name));
      }
      values += fmt::format(
          "    {}) values={} ;;\n", fmt::join(patterns, "|"),
          Quoted(option.values.empty() ? "FILES"
                                       : fmt::format("{}", fmt::join(option.values, " "))));
    }
    words += fmt::format("    {}) names={}; commands={} ;;\n", Quoted(command.path),
                         Quoted(fmt::format("{}", fmt::join(NamesOf(command), " "))),
                         Quoted(fmt::format("{}", fmt::join(command.commands, " "))));
  }
  const std::string cases = PathCases(all, "      {}) command={} ;;\n");
  if (zsh) {
    return fmt::format(
        "#compdef kvcheck\n"
        "_kvcheck() {{\n"
        "  local command= values= names= commands= i\n"
        "  for ((i = 2; i < CURRENT; i++)); do\n"
        "    case \"$command ${{words[i]}}\" in\n{}    esac\n  done\n"
        "  case \"$command:${{words[CURRENT-1]}}\" in\n{}  esac\n"
        "  case \"$command\" in\n{}  esac\n"
        "  if [[ $values == FILES ]]; then _files\n"
        "  elif [[ -n $values ]]; then compadd -- ${{=values}}\n"
        "  elif [[ ${{words[CURRENT]}} == -* ]]; then compadd -- ${{=names}}\n"
        "  elif [[ -n $commands ]]; then compadd -- ${{=commands}}\n"
        "  else _files; fi\n"
        "}}\n"
        "compdef _kvcheck kvcheck\n",
        cases, values, words);
  }
  return fmt::format(
      "_kvcheck() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} command= values= names= commands= i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$command ${{COMP_WORDS[i]}}\" in\n{}    esac\n  done\n"
      "  case \"$command:${{COMP_WORDS[COMP_CWORD-1]}}\" in\n{}  esac\n"
      "  case \"$command\" in\n{}  esac\n"
      "  if [[ -z $values && $current == -* ]]; then values=$names\n"
      "  elif [[ -z $values ]]; then values=${{commands:-FILES}}; fi\n"
      "  if [[ $values == FILES ]]; then COMPREPLY=($(compgen -f -- \"$current\"))\n"
      "  else COMPREPLY=($(compgen -W \"$values\" -- \"$current\")); fi\n"
      "}}\n"
      "complete -o filenames -F _kvcheck kvcheck\n",
      cases, values, words);
}

std::string FishScript(const std::vector<CommandWords>& all) {
  std::string text = fmt::format(
      "function __kvcheck_at\n"
      "  set -l command\n"
      "  for word in (commandline -opc)[2..]\n"
      "    switch \"$command $word\"\n{}    end\n  end\n"
      "  test \"$command\" = \"$argv[1]\"\n"
      "end\n",
      PathCases(all, "      case {}; set command {}\n"));
  const auto line = [](const std::string& path) {
    return fmt::format("complete -c kvcheck -n {}",
                       Quoted(fmt::format("__kvcheck_at \"{}\"", path)));
  };
  for (const CommandWords& command : all) {
    for (const CommandWords& below : all) {
      const size_t last = below.path.rfind(' ');
      const std::string before = last == std::string::npos ? "" : below.path.substr(0, last);
      if (below.path.empty() || before != command.path) continue;
      text += fmt::format("{} -f -a {} -d {}\n", line(command.path),
                          Quoted(below.path.substr(last == std::string::npos ? 0 : last + 1)),
                          Quoted(below.help));
    }
    for (const OptionWords& option : command.options) {
      text += line(command.path);
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.values.empty()) {
        text += fmt::format(" -x -a {}", Quoted(fmt::format("{}", fmt::join(option.values, " "))));
      } else if (option.takes_value) {
        text += " -r";
      }
      text += fmt::format(" -d {}\n", Quoted(option.help));
    }
  }
  return text;
}

}  // namespace

void AddCompletionCommand(CLI::App* app, ChosenCommand* chosen) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app->add_subcommand("completion", "Print what a shell completes commands and options by");
  command->footer(
      "bash: source <(kvcheck completion bash), in ~/.bashrc\n"
      "zsh:  source <(kvcheck completion zsh), in ~/.zshrc behind compinit\n"
      "fish: kvcheck completion fish > ~/.config/fish/completions/kvcheck.fish");
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->required()
      ->type_name("SHELL");
  command->callback([=] {
    *chosen = [=] {
      std::vector<CommandWords> all;
      Collect(*app, "", &all);
      std::cout << (*shell == "fish" ? FishScript(all) : BourneScript(all, *shell == "zsh"))
                << std::flush;
      return kExitPassed;
    };
  });
}

}  // namespace kvcheck
