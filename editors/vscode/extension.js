// Starts `hlo-opt lsp` and connects it with the editor; all answers are the server's.
"use strict";

const { window, workspace } = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

async function start() {
  const [command, ...args] = workspace.getConfiguration("hlo").get("server");
  const run = { command, args, transport: TransportKind.stdio };
  const selector = [{ language: "hlo" }];
  client = new LanguageClient("hlo", "HLO", { run, debug: run }, { documentSelector: selector });
  try {
    await client.start();
  } catch (error) {
    window.showErrorMessage(
      `HLO: ${command} did not start (${error.message}). pip install 'hlo[lsp]', ` +
        "or say where it is: the setting hlo.server."
    );
  }
}

async function activate(context) {
  context.subscriptions.push(
    workspace.onDidChangeConfiguration(async (change) => {
      if (change.affectsConfiguration("hlo.server")) {
        await deactivate();
        await start();
      }
    })
  );
  await start();
}

async function deactivate() {
  if (client && client.isRunning()) {
    await client.stop();
  }
}

module.exports = { activate, deactivate };
